"""Token numbers by what they stand for."""

PAD, MASK, START, BLANK = 0, 1, 2, 3
FIRST = 4

# Shares of the vocabulary, from FIRST on: words, signs of programs, digits.
_BANDS = (("words", 0.5), ("signs", 0.3), ("digits", 0.2))


def bands(vocab):
    """{'words': range(…), …} over the tokens that are not special."""
    room = vocab - FIRST
    found, at = {}, FIRST
    for index, (name, share) in enumerate(_BANDS):
        is_last = index == len(_BANDS) - 1
        end = vocab if is_last else at + int(room * share)
        found[name] = range(at, end)
        at = end
    return found


def is_special(token):
    return token < FIRST
