"""The last word on a classifier."""

from collections import namedtuple

from comm import sums
from corpus.source import KINDS
from evaluate import counts
from learner import weights as tensors

Scores = namedtuple("Scores", "right kinds worst mixed sure")
Kind = namedtuple("Kind", "name precision recall f1 count")


def of_kind(matrix, kind):
    hit = matrix[kind][kind]
    told = sum(row[kind] for row in matrix)
    count = sum(matrix[kind])
    precision = hit / told if told else 0.0
    recall = hit / count if count else 0.0
    both = precision + recall
    return Kind(KINDS[kind], precision, recall, 2 * precision * recall / both if both else 0.0, int(count))


def mixed_up(matrix):
    """The pairs of kinds that are taken for each other, the most frequent first."""
    pairs = []
    for true in range(len(matrix)):
        for told in range(len(matrix)):
            if true != told and matrix[true][told] > 0:
                pairs.append((matrix[true][told], KINDS[true], KINDS[told]))
    return sorted(pairs, reverse=True)


def sureness(weights, table, place, above=0.8):
    """Of the answers that look sure, the share that is right."""
    sure, right = 0, 0
    for rows, labels in counts.pieces(table):
        best, told = tensors.logits(weights, rows).softmax(1).max(1)
        for confidence, answer, label in zip(best.tolist(), told.tolist(), labels.tolist(), strict=True):
            if confidence < above:
                continue
            sure += 1
            if answer == label:
                right += 1
    sure, right = sums.total([sure, right], place.size)
    return right / sure if sure else 0.0


def score(weights, table, opts, place):
    """All scores of a table. A collective."""
    matrix = counts.confusion(weights, table, place)
    rows = [of_kind(matrix, kind) for kind in range(table.kinds)]
    total = sum(map(sum, matrix))
    right = sum(matrix[kind][kind] for kind in range(table.kinds))
    present = [row for row in rows if row.count]
    worst = min(present, key=lambda row: row.f1).name if present else "none"
    share = right / total if total else 0.0
    return Scores(share, rows, worst, mixed_up(matrix), sureness(weights, table, place))
