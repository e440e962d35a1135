"""Ranks that leave the program that most ranks run: of a mesh, every row has groups of its own with one description.

Example: ranks of two rows issue tp, tp, dp; rank 6 issues tp, dp → rank 6 left the others' program at its second call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hangdoc.diagnosis.calls.history import RankProgram, Token, distinct
from hangdoc.model.journal import Call
from hangdoc.model.operations import operation

_LEAST_SHARE = 0.6
"""Of the ranks that have to agree on a call; chosen by hand."""


def strays(programs: dict[int, RankProgram]) -> dict[int, Token]:
    """Rank → the first call at which it left the program of the others; {} where there is no such program: with
    messages, where old calls are forgotten, or where too few agree."""
    # One walk over all programs at once, call by call: what a step decides depends on who is left.
    whole = {
        rank: p
        for rank, p in programs.items()
        if not p.journal.forgotten and not p.journal.point_to_points and p.journal.calls
    }
    if len(whole) < max(4, len(programs)):
        return {}
    keys = _Keys()
    alike: dict[tuple[int, ...], list[tuple[RankProgram, tuple[int, ...]]]] = {}
    for program, ranks in distinct(whole):
        alike.setdefault(keys.of(program), []).append((program, ranks))
    weights = {sequence: sum(len(ranks) for _, ranks in those) for sequence, those in alike.items()}
    found: dict[int, Token] = {}
    together = set(alike)
    for place in range(max(map(len, alike))):
        here: Counter[int] = Counter()
        for sequence in together:
            if place < len(sequence):
                here[sequence[place]] += weights[sequence]
        if len(here) < 2:
            continue
        usual, count = here.most_common(1)[0]
        if count < _LEAST_SHARE * here.total():
            return {}
        for sequence in [each for each in together if place < len(each) and each[place] != usual]:
            for program, ranks in alike[sequence]:
                found.update(dict.fromkeys(ranks, program.token(place)))
            together.discard(sequence)
    return found


class _Keys:
    """Numbers for calls: those that are the same step of one program, whichever rank's, have the same."""

    def __init__(self) -> None:
        self._by_course: dict[Hashable, tuple[int, ...]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._places: dict[tuple[int, int], int] = {}
        """(table of stacks, index) → number of the site."""
        self._sites: dict[Hashable, int] = {}

    def of(self, program: RankProgram) -> tuple[int, ...]:
        """The numbers of its calls. A course that dumps have in common is looked at once."""
        course = program.recording.course
        if course is None:
            return tuple(self._number(program, _label(program, call.group), call) for call in program.journal.calls)
        labels = tuple([_label(program, name) for name in program.recording.by_group])
        key = id(program.recording.stacks), course, labels
        if key not in self._by_course:
            calls = zip(course.groups, course.calls, strict=True)
            self._by_course[key] = tuple([self._number(program, labels[group], call) for group, call in calls])
        return self._by_course[key]

    def _number(self, program: RankProgram, label: str, call: Call) -> int:
        sized = operation(call.op).sized
        key = label, call.op, *((call.input_sizes, call.input_dtypes) if sized else ()), self._site(program, call)
        return self._numbers.setdefault(key, len(self._numbers))

    def _site(self, program: RankProgram, call: Call) -> int:
        """Number of the call's site. Of thousands of ranks each stack is looked at once."""
        place = id(program.recording.stacks), call.stack
        if place not in self._places:
            self._places[place] = self._sites.setdefault(program.site(call), len(self._sites))
        return self._places[place]


def _label(program: RankProgram, name: str) -> str:
    """What the group is called in all rows of a mesh."""
    group = program.groups.get(name)
    return (group.description if group is not None else "") or name
