"""What a rank's main thread did, in order: its decisions, its calls, and where it is now.

Example: `for batch in loader` another round, all_reduce at train.py:61, `if loss > limit` True, now at save.py:12.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hangdoc.diagnosis.execution.alignment import Step
from hangdoc.diagnosis.execution.decisions import Decision, Key, decisions, part_of, whole_counts
from hangdoc.diagnosis.execution.tested import ROUND
from hangdoc.diagnosis.frames.stacks import Path, path_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import MOST_TAKEN, BranchCounts
from hangdoc.model.journal import Call, Journal, PointToPoint
from hangdoc.model.process import Process, Stack
from hangdoc.model.snapshot import RankSnapshot

LONGEST = 1200
"""Acts of a side that are compared; chosen by hand: a snapshot holds up to a thousand decisions."""


class Act(NamedTuple):
    """One step of a rank. ``decided`` with its last jump, ``test``; or ``call`` with its ``stack``; or, with a stack
    alone, where it is now."""

    step: Step
    at_ns: int
    decided: Decision | None = None
    test: BranchCounts | None = None
    call: Call | PointToPoint | None = None
    stack: Stack = ()
    shared: Hashable = None
    """Of a collective: the same on ranks that joined it from the same lines."""
    group: tuple[str, tuple[int, ...]] = ("", ())
    """Of a collective: the name of its group, and the members."""

    @property
    def begins(self) -> bool:
        """True for what begins a round of a loop."""
        return self.step.value == ROUND


@dataclass(frozen=True, slots=True)
class Trace:
    """``since_ns``: no call is missing from then on; 0: from the start of the program. ``kept``: the decisions of which
    older ones are missing, and since when none is. ``rounds``: how often each loop has gone on; ``counts``: how often
    each decision came out in each way, of those of which all is known; ``cut``: the decisions that the probe has given
    up on, of which some may be missing."""

    acts: tuple[Act, ...]
    since_ns: int
    kept: Mapping[Key, int]
    rounds: Mapping[Key, int]
    counts: Mapping[Key, Mapping[str, int]]
    cut: frozenset[Key] = frozenset()
    last: Mapping[Key, str] = field(default_factory=dict)
    """What each decision that one jump makes came out as last, in whatever thread."""

    def without(self, keys: Set[Key]) -> Trace:
        """Without these decisions."""
        if not keys:
            return self
        kept = (act for act in self.acts if act.decided is None or act.decided.key not in keys)
        return replace(self, acts=tuple(kept))


def trace(sources: Sources, rank: RankSnapshot) -> Trace | None:
    """What the rank did, as far as it was recorded; None where no branches were."""
    process, journal = rank.process, rank.journal
    if process is None or not process.branches:
        return None
    taken = [each for each in process.taken if 0 <= each.branch < len(process.branches)]
    tests = [process.branches[each.branch] for each in taken]
    decided = decisions(sources, zip(tests, (each.value for each in taken), strict=True))
    acts = [Act(Step(each.key, each.value), taken[each.number].at_ns, each, tests[each.number]) for each in decided]
    acts += _calls(journal, process) if journal is not None else ()
    acts.sort(key=lambda act: act.at_ns)
    main = process.last.main.frames if process.last is not None and process.last.main is not None else ()
    before = next((act for act in reversed(acts) if act.call is not None), None)
    if (here := path_of(main)) and (before is None or path_of(before.stack) != here):
        acts.append(Act(Step(("now", here), ""), acts[-1].at_ns if acts else 0, stack=main))
    rounds: dict[Key, int] = {}
    cut: set[Key] = set()
    last: dict[Key, str] = {}
    since, kept = _since(process, journal), dict[Key, int]()
    for branch in filter(lambda each: each.is_sound, process.branches):
        part = part_of(sources, branch)
        if part is not None:
            key = (branch.file, part.head.line, part.head.text)
            cut.update((key,) if branch.cut else ())
            kept[key] = max(kept.get(key, 0), branch.since_ns or since)
            if part.leaf is None:
                rounds[key] = rounds.get(key, 0) + branch.counts[branch.values.index("T")]
            if branch.last and len(part.head.leaves) < 2 and (one := decisions(sources, [(branch, branch.last[-1])])):
                last[key] = one[0].value
    called = 0 if journal is None or not journal.forgotten else min(_issued(journal), default=0)
    counts = whole_counts(sources, process.branches)
    return Trace(tuple(acts), called, kept, rounds, counts, frozenset(cut), last)


def _since(process: Process, journal: Journal | None) -> int:
    """Since when all decisions are there of which nothing else is said."""
    told = any(branch.since_ns for branch in process.branches)
    if told or not process.taken or len(process.taken) == sum(sum(each.counts) for each in process.branches):
        return 0
    # Those since the last call but one are all there, unless there were too many.
    calls = _issued(journal)[-2:] if journal is not None and len(process.taken) < MOST_TAKEN else []
    return min([process.taken[0].at_ns, *calls])


def _issued(journal: Journal) -> list[int]:
    return [at for place in range(len(journal.calls)) if (at := journal.call_issued_ns(place))]


def _calls(journal: Journal, process: Process) -> Iterator[Act]:
    """The main thread's, with their times."""
    members = {group.name: group.members for group in journal.groups}
    main = process.last.main.python_id if process.last is not None and process.last.main is not None else None
    for place, call in enumerate(journal.calls):
        at, stack = journal.call_issued_ns(place), journal.stack(call.stack)
        if at and _is_of(call, main):
            lines = path_of(stack)
            group = call.group, tuple(members.get(call.group) or ())
            shared = (*group, call.sequence, call.op, lines)
            yield Act(_step(call, lines), at, call=call, stack=stack, shared=shared, group=group)
    for place, message in enumerate(journal.point_to_points):
        at, stack = journal.message_issued_ns(place), journal.stack(message.stack)
        if at and _is_of(message, main):
            yield Act(_step(message, path_of(stack)), at, call=message, stack=stack)


def _is_of(call: Call | PointToPoint, thread: int | None) -> bool:
    return not thread or call.thread_id in (0, thread)


def _step(call: Call | PointToPoint, lines: Path) -> Step:
    return Step(("call", lines), call.op)


def together(
    mine: Trace, theirs: Trace, loops: Sequence[Key] = ()
) -> tuple[Act | None, Sequence[Act], Sequence[Act]] | None:
    """(where both begin, what each did since), from the earliest act that both have in common and behind which there is
    not too much: the start of the program (None); a round of one of ``loops``, the outermost of these first; a
    collective that both joined from the same lines. None where they have none.

    Of a decision of which older ones are missing, all are left out up to the first act in common since which none is.
    """
    sides = (mine, theirs)
    if not any(side.since_ns or any(side.kept.values()) or len(side.acts) > LONGEST for side in sides):
        return None, mine.acts, theirs.acts
    rounds: list[dict[Hashable, int]]
    rounds = [{(key, number): at for key in loops for number, at in _rounds(side, key)} for side in sides]
    calls = [{act.shared: at for at, act in enumerate(side.acts) if act.shared is not None} for side in sides]
    for known, others in (rounds, calls):
        begun = [(at, others[key]) for key, at in known.items() if key in others]
        since = _whole_since(sides, begun)
        whole = [
            [at for at, act in enumerate(side.acts) if act.decided is None or at >= since[act.decided.key][number]]
            for number, side in enumerate(sides)
        ]
        short = [both for both in begun if all(_left(whole[n], at) <= LONGEST for n, at in enumerate(both))]
        for both in (*short[:1], *begun[-1:]):
            acts = [
                [side.acts[at] for at in places[bisect_left(places, start) :]][:LONGEST]
                for side, places, start in zip(sides, whole, both, strict=True)
            ]
            return mine.acts[both[0]], acts[0], acts[1]
    return None


def _left(places: Sequence[int], start: int) -> int:
    return len(places) - bisect_left(places, start)


def _whole_since(sides: tuple[Trace, Trace], begun: Sequence[tuple[int, int]]) -> dict[Key, tuple[int, int]]:
    """Decision → the first of the places since which nothing of it is missing on both sides; behind all acts where
    there is none."""
    end = len(sides[0].acts), len(sides[1].acts)
    times = [[side.acts[both[number]].at_ns for both in begun] for number, side in enumerate(sides)]
    found = {}
    for key in {act.decided.key: None for side in sides for act in side.acts if act.decided is not None}:
        kept = [side.kept.get(key, 0) for side in sides]
        first = max(bisect_left(of_side, at) for of_side, at in zip(times, kept, strict=True))
        found[key] = (0, 0) if not any(kept) else begun[first] if first < len(begun) else end
    return found


def _rounds(side: Trace, key: Key) -> Iterator[tuple[int, int]]:
    """(which round of the loop since the start of the program, its place among the acts), the first known one first."""
    begun = [
        at for at, act in enumerate(side.acts) if act.decided is not None and act.decided.key == key and act.begins
    ]
    begun = [at for at in begun if side.acts[at].at_ns >= side.kept.get(key, 0)]
    yield from enumerate(begun, side.rounds.get(key, 0) - len(begun))
