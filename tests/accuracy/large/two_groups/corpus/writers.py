"""Writers of documents of three kinds. Each takes a random source and yields tokens without an end."""

from corpus.vocabulary import BLANK, bands

WRITERS = {}


def writer(kind):
    def keep(function):
        if kind in WRITERS:
            raise ValueError(f"two writers of {kind}")
        WRITERS[kind] = function
        return function

    return keep


@writer("prose")
def prose(source, vocab):
    words = bands(vocab)["words"]
    previous = source.choice(words)
    while True:
        if source.random() < 0.35:
            previous = words[(words.index(previous) * 3 + 1) % len(words)]
        else:
            previous = source.choice(words)
        yield previous


@writer("code")
def code(source, vocab):
    signs, words = bands(vocab)["signs"], bands(vocab)["words"]
    depth = 0
    while True:
        roll = source.random()
        if roll < 0.2:
            depth += 1
            yield signs[0]
        elif roll < 0.4 and depth:
            depth -= 1
            yield signs[1]
        elif roll < 0.7:
            yield source.choice(signs[2:])
        else:
            yield words[(depth * 5 + source.randrange(6)) % len(words)]


@writer("tables")
def tables(source, vocab):
    digits = bands(vocab)["digits"]
    columns = source.randrange(2, 5)
    at = 0
    while True:
        at += 1
        if at % (columns + 1) == 0:
            yield BLANK
        else:
            yield source.choice(digits)


def page_of_blanks(count):
    """What a scanner makes of an empty page."""
    return [BLANK] * count
