"""Each rank probes documents of its own; sums are added over the world."""

import random

import torch
import torch.distributed as dist

from corpus.stream import Stream
from corpus.vocabulary import bands
from corpus.writers import WRITERS
from training.losses import hits, masked_loss


def unseen(kind, config, rank):
    """Documents of one kind out of a source that no volume uses."""
    source = random.Random(f"unseen {kind} {rank}")
    tokens = WRITERS[kind](source, config["vocab"])
    for _ in range(config["batch"]):
        yield [next(tokens) for _ in range(source.randrange(config["shortest"], config["length"] + 1))]


def band_of(token, table):
    for name, tokens in table.items():
        if token in tokens:
            return name
    return "special"


@torch.no_grad()
def probe(net, config, groups):
    """Scores by kind of document. A collective of the world."""
    net.eval()
    corpus, topk = config["corpus"], config["probe"]["topk"]
    kinds = sorted(corpus["mix"])
    sums = torch.zeros(len(kinds), 4)
    table, missed = bands(corpus["vocab"]), {}
    for row, kind in enumerate(kinds):
        stream = Stream(list(unseen(kind, corpus, groups.rank)), corpus, seed=groups.rank + 50)
        for _ in range(max(1, config["probe"]["documents"] // corpus["batch"])):
            inputs, targets = next(stream)
            logits = net(inputs)
            first, asked = hits(logits, targets, 1)
            near, _ = hits(logits, targets, topk)
            sums[row] += torch.tensor([float(masked_loss(logits, targets)) * asked, first, near, asked])
            if near < asked:
                for token in targets[targets >= 0].tolist():
                    name = band_of(token, table)
                    missed[name] = missed.get(name, 0) + 1
    dist.all_reduce(sums, group=groups.world)
    score = {}
    for kind, (loss, first, near, asked) in zip(kinds, sums.tolist(), strict=True):
        if not asked:
            continue
        score[f"{kind} loss"] = loss / asked
        score[f"{kind} first"] = first / asked
        if topk > 1:
            score[f"{kind} top {topk}"] = near / asked
    if groups.rank == 0 and missed:
        score["hardest here"] = max(missed, key=missed.get)
    return score
