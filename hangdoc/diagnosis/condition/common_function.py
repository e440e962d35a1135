"""The innermost function that both sides are in: which of its conditions can be where they diverged."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.condition.stack_comparison import (
    Callees,
    guards_of,
)
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class CommonFunction:
    """The innermost function that both sides are in. Place i of each pair is side i."""

    frames: tuple[Frame, Frame]
    guards: tuple[list[Guard], list[Guard]]
    """The guards around each side's line, outermost first."""
    in_one_loop: bool
    """Both sides are in the same loop, perhaps in different rounds of it."""
    rounds: frozenset[str]
    """The names that count the rounds of such loops."""
    one_round: bool
    """What counts the rounds of the loops that both are in, there or in their callers, shows both in the same one."""

    def can_decide(self, guard: Guard, side: int) -> bool:
        """False if ``guard`` of ``side`` can't be where the sides diverged: both passed it alike, or one never did.

        A side at an earlier line may have passed the guard in an earlier round of a loop that both are in. Example:
        `if done: return` at line 9 and the other side at line 5 → False; of `if done: continue` → True, unless both are
        in one round.
        """
        other_line = self.frames[1 - side].line
        if guard.kind == "decorator" or _is_among(self.guards[1 - side], guard, taken=guard.taken):
            return False  # a decorator let both sides into the function
        if guard.kind == "loop":
            return self.in_one_loop or other_line >= guard.span[0]
        if guard.names and self.rounds.issuperset(guard.names):
            return False  # in one round of a loop, what counts its rounds is the same on both sides
        if guard.condition == "finally:" and not guard.holds(other_line):
            return False  # every way leads there; only a side that is still inside shows that this one raised
        left = guard.kind == "return" and not (guard.goes_on and self.in_one_loop)
        return other_line >= guard.line or not (self.one_round or left)

    def has_both_arms(self, guard: Guard, side: int) -> bool:
        """True if the other side is in the other arm of ``guard``."""
        return guard.kind in ("if", "expression") and _is_among(self.guards[1 - side], guard, taken=not guard.taken)


def common_function(
    sources: Sources, frames: tuple[Frame, Frame], callees: Callees, *, one_round: bool
) -> CommonFunction:
    """What the lines ``frames[0]`` and ``frames[1]`` of one function have around them, and which rounds both are in."""
    mine, theirs = (guards_of(sources, frame, callees) for frame in frames)
    loops = [guard for guard in mine if guard.kind == "loop" and guard in theirs]
    rounds = frozenset(name for loop in loops for name in loop.rounds)
    return CommonFunction(frames, (mine, theirs), bool(loops), rounds, one_round)


def _is_among(guards: list[Guard], guard: Guard, *, taken: bool) -> bool:
    """True if one of ``guards`` is the condition of ``guard``, and has the truth ``taken``."""
    return any(each.place == guard.place and each.taken == taken for each in guards)
