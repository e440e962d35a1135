"""What a rule answers, and which ranks and lines of the two sides it names."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import fork, same_line, user_stack
from hangdoc.model.kinds import GONE
from hangdoc.model.message import Condition, Message
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause. ``verdict`` is one sentence; ``why`` and ``fix`` speak of the user's own code; ``doubt`` says that
    something else would look the same."""

    code: str
    verdict: Message
    why: Message
    fix: Message
    doubt: str = ""
    decided_at: Condition | None = None
    """The condition to show as the branch; without it, what the divergence shows, or the first that ``why`` cites."""
    or_at: Condition | None = None
    """Another one, that may have decided in its place."""
    by_chance: bool = False
    """Threads ran in one order here and in another there: no test between the sides decided it."""
    reorders: bool = False
    """Every rank makes the calls, and the culprits in another order: none is to be added or removed."""
    replaces: bool = False
    """The culprits make one call where another belongs."""
    recorded: bool = False
    """The ranks are recorded to have parted at ``decided_at``."""
    shown: tuple[tuple[Frame, Message], ...] = ()
    """Further lines that show it, with what is to be said of each."""


def telling(gap: Gap) -> tuple[Frame | None, Frame | None]:
    """(culprits', others') line to show: the innermost user line, or, where both are in the same helper, the first
    line on the way there that differs.

    Example: train:9 → sync:3 and train:14 → sync:3 → (train:9, train:14).
    """
    sides = [user_stack(t.stack) if t is not None else () for t in (gap.mine, gap.theirs)]
    a, b = (side[0] if side else None for side in sides)
    if a is None or b is None or (a.file, a.line) != (b.file, b.line):
        return a, b
    return fork(sides[0], sides[1], same=same_line).frames or (a, b)


def telling_token(gap: Gap) -> Frame | None:
    """The line to show for the call that is one too many, or missing."""
    mine, theirs = telling(gap)
    return mine if gap.token is gap.mine else theirs if gap.token is gap.theirs else gap.token.frame


def others_of(case: Case, blame: Blame[Explanation]) -> tuple[int, ...]:
    """The ranks that suffer: members of the group (or everybody) without the culprits, and without those that are gone
    and of whose calls nothing is known.

    Example: ranks 0 to 3, culprit 1, and rank 3 was killed together with its journal → (0, 2).
    """
    history = blame.diverged.alignment.history if blame.diverged else None
    members = history.members if history is not None else tuple(case.activities)
    apart = case.hidden | frozenset(blame.culprits)
    found = tuple(r for r in members if r not in apart)
    blind = set(history.blind) if history is not None else set()
    known = [r for r in found if r not in blind or case.activities[r].stack or case.activities[r].kind not in GONE]
    return tuple(known) or found
