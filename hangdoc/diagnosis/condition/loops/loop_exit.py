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

from hangdoc.diagnosis.bounds import OFTEN
from hangdoc.diagnosis.frames.stacks import Path


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a rank's program, or a batch of messages. ``kind``: what makes two of them the same."""

    kind: Hashable
    path: Path


# Each branch is one of the conditions that the docstring names.
def leaves_loop(steps: Sequence[Step], at: int, inside: Step, least: int = OFTEN, *, forgotten: bool = False) -> bool:
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
