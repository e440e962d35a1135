"""Documents into rows of one length."""

EMPTY = -1


def pack(documents, context, rows):
    """``rows`` rows of ``context`` tokens, and what is left of the last document.

    A document that is longer than a row goes on in the next one; a rest of fewer than three tokens is not worth
    a row and is dropped.
    """
    table, rest = [], []
    while len(table) < rows:
        if len(rest) < 3:
            rest = list(next(documents)[1])
            continue
        row, rest = rest[:context], rest[context:]
        if len(row) < context:
            row = row + [EMPTY] * (context - len(row))
        table.append(row)
    return table, rest


def one_each(documents, context, rows):
    """Each row the begin of one document."""
    table, topics = [], []
    for topic, tokens in documents:
        cut = tokens[:context]
        table.append(cut + [EMPTY] * (context - len(cut)) if len(cut) < context else cut)
        topics.append(topic)
        if len(table) == rows:
            break
    return table, topics


def density(table):
    filled = sum(1 for row in table for token in row if token != EMPTY)
    cells = sum(len(row) for row in table)
    return filled / cells if cells else 0.0
