"""Whether a call comes after a loop that other ranks are still in, where no source is there to read: by the lines.

The calls of a loop come again and again, from lines that lie above what follows it. A loop ends between two rounds: the
call before the exit is the last one of its round, so that in other rounds the next call comes from a line above it.

Example: main:10 and main:12 ten times, then main:20, while the other ranks are at main:10 again → main:20 is after the
loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.calls.history import RankProgram, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Path, path_of

_LEAST_ROUNDS = 3
"""Times that a call was made before it counts as a loop's; chosen by hand: two calls of one line may be two steps."""
_MOST_WITHOUT_LINES = 64
"""Calls of a library's threads after which one with a line is looked for; chosen by hand: a model has fewer buckets."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a rank's program, or a batch of messages. ``kind``: what makes two of them the same."""

    kind: Hashable
    path: Path


def is_after_loop(case: Case, call: Token, inside: Token) -> bool:
    """True if the rank of ``call`` made it after the loop in which ``inside``, another rank's call, lies.

    Where that rank makes the same call next, no round is missing but the one call: it was left out, or comes later.
    """
    program, other = case.programs.get(call.rank), case.programs.get(inside.rank)
    if program is None or other is None or min(call.order, inside.order) < 0:
        return False
    if [_step(other, token).kind for token in other.tokens[inside.order + 1 :][:1]] == [_step(program, call).kind]:
        return False
    steps = [_step(program, token) for token in program.tokens]
    forgotten = program.journal.forgotten > 0
    return leaves_loop(steps, call.order, _begun_with(program, other, call, inside), forgotten=forgotten)


def _begun_with(program: RankProgram, other: RankProgram, call: Token, inside: Token) -> Step:
    """What the other rank went on with after the last call that both made: ``inside`` is the first of its own group.

    Calls of a library's own threads have no lines: the first that has some tells where they are. Example: both made
    [A, B], then one rank C of another group and ``inside`` → C.
    """
    last = program.token(call.order - 1) if call.order > 0 else None
    common = _place_of(other, program, last) if last is not None else None
    first = common + 1 if common is not None and common < inside.order else inside.order
    steps = [_step(other, token) for token in other.tokens[first : first + _MOST_WITHOUT_LINES]]
    return next((each for each in steps if each.path), _step(other, inside))


def _place_of(other: RankProgram, program: RankProgram, call: Token) -> int | None:
    """Where the other rank made that call, in the same group or in its own of that name."""
    label = _label(program, call.group[0])
    names = [name for name in other.recording.by_group if _label(other, name) == label]
    best = [name for name in names if other.key(name) == call.group] or names
    return other.recording.by_group[best[0]].place_of(call.sequence) if best else None


# Each branch is one of the conditions that the docstring names.
def leaves_loop(
    steps: Sequence[Step], at: int, inside: Step, least: int = _LEAST_ROUNDS, *, forgotten: bool = False
) -> bool:
    """True if the step at that place comes after the loop that ``inside`` is of. What came ``least`` times is a
    loop's; ``forgotten``: the ring has lost the first round."""
    here, there = steps[at].path, inside.path
    level = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
    if level is None or here[level][:2] != there[level][:2]:
        return False
    often = Counter(each.kind for each in steps[:at])
    paths = [s.path for s in steps[:at] if often[s.kind] >= least and len(s.path) > level]
    loop = [path for path in paths if (path[:level], path[level][:2]) == (here[:level], here[level][:2])]
    if often[inside.kind] < least or not loop:
        return False
    if any(path[level][2] >= here[level][2] for path in loop):
        return False
    return not any(often[s.kind] >= least for s in steps[at + 1 :]) and _begins_round(there, loop, forgotten=forgotten)


def _begins_round(path: Path, loop: list[Path], *, forgotten: bool) -> bool:
    """True if a new round begins with that path after the last one of ``loop``: its line lies above, or is the same.

    Between two functions that one line calls, no line tells: then it must be what the first round began with, or, where
    that is forgotten, what followed the last one before.
    """
    differing = next((pair for pair in zip(path, loop[-1], strict=False) if pair[0] != pair[1]), None)
    if differing is not None and differing[0][:2] != differing[1][:2]:
        return path == loop[0] or (forgotten and (loop[-1], path) in set(pairwise(loop)))
    return differing is None or differing[0][2] < differing[1][2]


def _step(program: RankProgram, token: Token) -> Step:
    return Step((_label(program, token.group[0]), token.op, token.site), path_of(token.stack))


def _label(program: RankProgram, name: str) -> str:
    """What the group is called in all rows of a mesh."""
    group = program.groups.get(name)
    return (group.description if group is not None else "") or name
