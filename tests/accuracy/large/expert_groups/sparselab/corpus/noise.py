"""Noise for training rows, other noise on each rank."""

from sparselab.corpus.packing import EMPTY


def disturb(row, options, chance):
    """Replaces some tokens by others of the same class, and sometimes repeats one."""
    classes = options["experts"]
    noisy = []
    for token in row:
        if token != EMPTY and chance.random() < options["noise"]:
            jump = classes * chance.randrange(1, options["vocabulary"] // classes)
            token = (token + jump) % options["vocabulary"]
        noisy.append(token)
    if chance.random() < 0.1 and EMPTY not in noisy:
        place = chance.randrange(1, len(noisy))
        noisy[place] = noisy[place - 1]
    return noisy


def choose_masked(row, share, chance):
    """Places whose loss does not count."""
    if not share:
        return [False] * len(row)
    masked = [token == EMPTY or chance.random() < share for token in row]
    # Something has to be left to learn from.
    if all(masked[1:]):
        masked[1] = row[1] == EMPTY
    return masked
