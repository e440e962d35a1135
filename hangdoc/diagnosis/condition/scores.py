"""How likely the sides diverged at a guard: a score, only ever compared with the scores of other guards.

Each number is a judgement, tuned by hand on the saved cases in tests/data, which hold it in place. The order they
produce is what matters: a condition on the rank comes before an except suite, that before values that differ between
the sides and a loop that one side has left, and these before a plain condition.

Example: `if rank == 0:` has 1 + 5, `if loss < best:` with another loss on each side 1 + 3, `if verbose:` 1.
"""

from __future__ import annotations

from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard

LEFT_LOOP = 3.0
"""A loop that one side has left and the other has not."""
TRY_BODY = 0.6
"""A try body that the other side left: an exception is only one way out of it."""
PER_LEVEL = 0.01
"""More for each level further in."""
OF_LIBRARY = -1.0
"""Less for what a library decides: its code is the same everywhere, and the user's own condition says more."""
PLAIN = 1.0
"""Any condition, to begin with."""
_ON_RANK = 5.0
"""More for a condition on the rank."""
BY_RANK = PLAIN + _ON_RANK
"""What is set by a condition on the rank, and does not test it itself."""
_VALUES_DIFFER = 3.0
"""More where the values in the condition differ between the sides."""
_COUNT_DIFFERS = 1.0
"""More where the loop's counter differs between the sides."""
_EXCEPT_SUITE = 4.5
"""A side in an except suite: it says outright what happened."""
_SKIPPED_HANDLER = 1.4
"""A handler that would have jumped past the line."""
_FINALLY = 1.2
"""A side in a `finally:`, while the other side is still inside of the try."""
_EARLY_RETURN = -0.2
"""Less for an earlier `if …: return` than for a condition around the line itself."""
_REMAINDER = 0.3
"""More for a test of a remainder (`step % every`), and for a `case`: a condition that is seldom true is likelier to
differ between the sides than one that is nearly always true."""
_OF_AN_ITEM = -0.5
"""Less for a test of an inner loop's item: it keeps a rank from the call only if every item fails it."""
_PARTLY_ALIKE = -0.5
"""Less where one of the values is known to be alike, as the count of a loop's rounds: the others have to differ. A test
of a remainder then has no more for being seldom true."""
_SAME_EVERYWHERE = -2.0
"""A condition that is the same on every rank by its words (`world_size > 1`), whose values do not differ."""


def score_of_condition(
    guard: Guard, *, rank_like: bool, differs: bool, alike: bool = False, of_item: bool = False
) -> float:
    """The score of a guard that is no loop.

    ``rank_like``: it depends on the rank; ``differs``: a value in it differs between the sides; ``alike``: one is known
    to be the same; ``of_item``: it tests what an inner loop goes over. Example: `if rank == 0:`, whose values were not
    seen → 6.
    """
    score = _score_of_kind(guard)
    if differs:
        score += _VALUES_DIFFER
    elif not rank_like:
        score += _OF_AN_ITEM if of_item else 0.0
        score += _PARTLY_ALIKE - (_REMAINDER if _is_remainder(guard) else 0.0) if alike else 0.0
    if rank_like and guard.kind != "try":
        score += _ON_RANK
    elif _is_same_everywhere(guard) and not differs:
        score += _SAME_EVERYWHERE
    return score


def score_of_loop(guard: Guard, *, counts_differ: bool) -> float:
    """The score of a loop that one side has left. Example: `for batch in loader:`, batch 6 and batch 7 → 4."""
    score = LEFT_LOOP + (_COUNT_DIFFERS if counts_differ else 0.0)
    return score + _SAME_EVERYWHERE if _is_same_everywhere(guard) else score


def _score_of_kind(guard: Guard) -> float:
    if guard.kind == "try":
        if guard.is_tried:
            return TRY_BODY
        return _FINALLY if guard.condition == "finally:" else _EXCEPT_SUITE if guard.taken else _SKIPPED_HANDLER
    score = PLAIN + guard.depth * PER_LEVEL
    score += _EARLY_RETURN if guard.kind == "return" else _REMAINDER if guard.kind == "match" else 0.0
    return score + (_REMAINDER if _is_remainder(guard) else 0.0)


def _is_remainder(guard: Guard) -> bool:
    return guard.kind in CONDITIONS and " % " in guard.condition


def _is_same_everywhere(guard: Guard) -> bool:
    return pattern("same_everywhere").search(guard.condition) is not None
