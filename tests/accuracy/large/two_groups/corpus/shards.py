"""Documents of one rank, out of an archive that all ranks share."""

import random

from corpus.vocabulary import is_special
from corpus.writers import WRITERS, page_of_blanks

# Empty pages at the end of some scanned volumes: (volume, first document, count).
EMPTY_PAGES = ((5, 36, 8), (2, 50, 1), (7, 44, 2))


def lengths(source, count, shortest, longest):
    for _ in range(count):
        length = int(source.triangular(shortest - 2, longest + 4, longest))
        yield max(2, min(length, longest))


def volume(number, config):
    """All documents of a volume, in their order; some are too short to be of use."""
    source = random.Random(7000 + number)
    kinds, shares = zip(*sorted(config["mix"].items()), strict=True)
    documents = []
    for length in lengths(source, config["documents"], config["shortest"], config["length"]):
        kind = source.choices(kinds, shares)[0]
        tokens = WRITERS[kind](source, config["vocab"])
        documents.append([next(tokens) for _ in range(length)])
    for owner, first, count in EMPTY_PAGES:
        if owner == number:
            documents[first : first + count] = [page_of_blanks(config["length"]) for _ in range(count)]
    return documents


def useful(documents, shortest):
    """Leave out documents that are too short, and such as repeat the one before."""
    kept, seen = [], None
    for document in documents:
        if len(document) < shortest:
            continue
        if document == seen and not all(is_special(token) for token in document):
            continue
        kept.append(document)
        seen = document
    return kept
