"""What the ranks' main threads did, as far as it was recorded: where two of them parted, and what came out on some as
never before.

Example: `if payload(hook) < limit:` was True the 48th time on rank 5, False there the 47 times before, and False on all
others each time → new to rank 5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.execution.alignment import align
from hangdoc.diagnosis.execution.decisions import Key, condition_key
from hangdoc.diagnosis.execution.parting import Pair, Parting, Seen, depends, parting
from hangdoc.diagnosis.execution.tested import ENDED, ROUND
from hangdoc.diagnosis.execution.traces import Trace, together, trace
from hangdoc.diagnosis.source.guards import (
    Guard,
    guards,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.marks import shown
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


class Executions:
    """What the ranks' main threads did, as far as it was recorded; each is read when it is first asked for."""

    def __init__(self, sources: Sources, ranks: Mapping[int, RankSnapshot]) -> None:
        self.sources = sources
        self._ranks = ranks
        self._traces: dict[int, Trace | None] = {}
        self._pairs: dict[tuple[int, int], Pair | None] = {}
        self._once: dict[tuple[tuple[int, ...], tuple[int, ...]], Mapping[Key, str]] = {}

    def __bool__(self) -> bool:
        """True if branches were recorded of any rank."""
        return bool(self._ranks)

    @classmethod
    def of(cls, job: JobSnapshot, ranks: Mapping[int, RankSnapshot]) -> Executions:
        """Those of a job."""
        recorded = {rank: each for rank, each in ranks.items() if each.process is not None and each.process.branches}
        # What a rank tested may lie in modules that no stack shows.
        whole = map(shown, job.modules) if recorded else ()
        return cls(Sources((*job.sources, *whole)), recorded)

    def pair(self, mine: int, theirs: int) -> Pair | None:
        """Two ranks beside each other; None where what was recorded of them has no common beginning."""
        if (mine, theirs) not in self._pairs:
            self._pairs[mine, theirs] = self._paired(mine, theirs)
        return self._pairs[mine, theirs]

    def parting(self, culprits: Sequence[int], others: Sequence[int]) -> Parting | None:
        """Where the first of the culprits (side 0) parted from the others; None where that was not recorded, or where
        some rank decided as those of the other side."""
        for first in culprits[:1]:
            for other in self.alike(first, others):
                pair = self.pair(first, other)
                found = parting(self.sources, pair) if pair is not None else None
                if pair is not None and found is not None and self._is_one_round(pair, found.column):
                    if not self._agree(pair, found, first, culprits, others):
                        return None
                    return self._raised_under(pair, found, (first, other)) or found
        return None

    def once(self, stacks: tuple[Stack, Stack], culprits: Sequence[int], others: Sequence[int]) -> Seen | None:
        """The one condition that kept the culprits (side 0) from the call of side 1, or led them alone to their own, by
        counts that are whole: each of them decided so once and otherwise else, and no other rank ever has, as often as
        it was asked.

        Example: `if bad:` in front of the others' all_reduce, True once on rank 2 and False 14 times, on all others
        False 15 times → that `if`, and side 1. Their order may not reach back so far.
        """
        traces = [[self._trace(rank) for rank in ranks] for ranks in (culprits, others)]
        found: dict[Key, Seen] = {}
        for side, stack in enumerate(stacks):
            for key, asked in depends(self.sources, stack):
                guard = asked.guard
                if guard.kind == "loop" and not side:
                    continue  # they were in more rounds of it, or in as many
                known = [[(each.counts.get(key, {}) if each is not None else {}) for each in some] for some in traces]
                led = {str(guard.taken), ROUND} if guard.kind == "loop" else {str(guard.taken)}
                mine, theirs = ([_split(counts, led) for counts in some] for some in known)
                if side:
                    mine, theirs = ([both[::-1] for both in some] for some in (mine, theirs))
                if _is_new(mine, theirs):
                    found[key] = Seen(guard, asked.frame, asked.level, side)
        return next(iter(found.values())) if len(found) == 1 else None

    def new(self, culprits: Sequence[int], others: Sequence[int]) -> dict[Key, str]:
        """The decisions, with their value, that came out on each of the culprits as never before, and on no other rank
        at all, since the calls that they made alike; by counts that are whole.

        Example: of `if payload(hook) < limit:`, True the 48th time on rank 5, and False on all others → that, 'True'.
        Those of other threads have no order: of them, what came last.
        """
        late = self._since_the_last_call(min(culprits), others) if culprits else None
        own = [self._trace(rank) for rank in culprits]
        found = self.once_only(culprits, others)
        return {k: v for k, v in found.items() if all(self._is_late(trace, late, k, v) for trace in own if trace)}

    def once_only(self, culprits: Sequence[int], others: Sequence[int]) -> Mapping[Key, str]:
        """The same, whenever that was."""
        sides = tuple(culprits), tuple(others)
        if sides not in self._once:
            self._once[sides] = self._came_out_once(*sides)
        return self._once[sides]

    def _came_out_once(self, culprits: Sequence[int], others: Sequence[int]) -> dict[Key, str]:
        mine, theirs = ([self._trace(rank) for rank in ranks] for ranks in (culprits, others))
        first = mine[0] if mine else None
        found: dict[Key, str] = {}
        for key, counts in first.counts.items() if first is not None and None not in mine else ():
            for value in counts:
                sides = [[_split(t.counts.get(key, {}), {value}) for t in some if t] for some in (mine, theirs)]
                if _is_new(*sides):
                    found[key] = value
        return found

    def is_new(self, test: Key, culprits: Sequence[int], others: Sequence[int]) -> bool:
        """True if the test (file, line, `if loss > limit:`) is one of these."""
        return bool(self._ranks) and condition_key(*test) in self.once_only(culprits, others)

    def anew(self, rank: int, stack: Stack, *, came: bool) -> list[Seen]:
        """The conditions on the way to the call with that stack that came out on the rank once, as never before, by its
        own earlier rounds: so that it ``came`` to the call, or so that it did not. Loops are none: each ends once.

        Example: `if not admits(size):` in front of the recv, True the 48th time on rank 6 → that, if it did not come.
        """
        known = self._trace(rank)
        found: dict[Key, Seen] = {}
        for key, asked in depends(self.sources, stack) if known is not None else ():
            so, otherwise = _split(known.counts.get(key, {}) if known is not None else {}, {str(asked.guard.taken)})
            once, usual = (so, otherwise) if came else (otherwise, so)
            if asked.guard.kind != "loop" and once == 1 and usual:
                found[key] = Seen(asked.guard, asked.frame, asked.level, 0)
        return list(found.values())

    def decided(self, rank: int, key: Key) -> tuple[Mapping[str, int], str] | None:
        """(how often the decision came out in each way, how it did last, '' where that is not known); None where its
        counts are not whole."""
        known = self._trace(rank)
        if known is None or key not in known.counts:
            return None
        own = (act.step.value for act in reversed(known.acts) if act.decided is not None and act.decided.key == key)
        return known.counts[key], next(own, known.last.get(key, ""))

    def refutes(self, file: str, guard: Guard, ranks: tuple[Sequence[int], Sequence[int]]) -> bool:
        """True if the sides came to the guard alike and decided alike there, each time since the first call of both;
        or ended a loop no sooner than the others, who are in no later round of it."""
        if not self._ranks or not all(ranks):
            return False
        first = min(ranks[0])
        pair = next((p for other in self.alike(first, ranks[1]) if (p := self.pair(first, other)) is not None), None)
        key = condition_key(file, guard.line, guard.condition)
        if guard.kind == "loop" and self._had_all_rounds(key, ranks):
            return True
        return pair is not None and (asked := list(pair.asked(key))) != [] and all(map(pair.is_alike, asked))

    def _had_all_rounds(self, key: Key, ranks: tuple[Sequence[int], Sequence[int]]) -> bool:
        """True if all of one side ended the loop once more than all others, and had as many rounds by then.

        Example: rank 5 ended it after 60 rounds, and the others are in their 60th → True: it left no round out.
        """
        known = [[self.decided(rank, key) for rank in side] for side in ranks]
        counts = [[each[0] for each in side if each is not None] for side in known]
        if [len(side) for side in counts] != [len(side) for side in ranks]:
            return False
        ended = [{each.get(ENDED, 0) for each in side} for side in counts]
        left = 0 if min(ended[0]) > max(ended[1]) else 1
        rounds = [[each.get(ROUND, 0) for each in side] for side in counts]
        return min(ended[left]) > max(ended[1 - left]) and min(rounds[left]) >= max(rounds[1 - left])

    def _since_the_last_call(self, rank: int, others: Sequence[int]) -> int | None:
        """When the rank made the last call that a sibling made as well; None where that was not recorded."""
        for other in self.alike(rank, others):
            pair = self.pair(rank, other)
            at = pair.call_before(len(pair.columns)) if pair is not None else -1
            act = pair.act(0, at) if pair is not None and at >= 0 else None
            if pair is not None:
                return act.at_ns if act is not None else 0
        return None

    @staticmethod
    def _is_late(trace: Trace, since_ns: int | None, key: Key, value: str) -> bool:
        own = [act for act in trace.acts if act.decided is not None and act.decided.key == key]
        if own:
            return any(act.step.value == value and act.at_ns >= (since_ns or 0) for act in own) and since_ns is not None
        return trace.last.get(key, value) == value  # what a thread did last goes with it

    def alike(self, rank: int, others: Iterable[int]) -> list[int]:
        """Those of the others that were recorded, first those that came by most of the places that the rank did and by
        fewest others: they have the same part to play."""
        traces = {each: found for each in (rank, *sorted(others)) if (found := self._trace(each)) is not None}
        places = {each: {act.step.place for act in found.acts} for each, found in traces.items()}
        mine = places.pop(rank, set())
        apart = {each: len(mine ^ theirs) for each, theirs in places.items()}
        return sorted(apart, key=lambda each: apart[each])[:TRIED]

    def _agree(self, pair: Pair, found: Parting, first: int, culprits: Sequence[int], others: Sequence[int]) -> bool:
        """True if no other culprit decided there as the others did, and none of the others as the first culprit."""
        own = pair.columns[found.column][0]
        values = [pair.value(side, found.column) for side in (0, 1)]
        for side, ranks in enumerate((sorted(set(culprits) - {first}), sorted(others))):
            for rank in ranks[:TRIED]:
                beside = self.pair(first, rank)
                if beside is None or own is None or pair.start != beside.start:
                    continue
                column = next((n for n, each in enumerate(beside.columns) if each[0] == own), None)
                value = beside.value(1, column) if column is not None else ""
                if value and value != values[side]:
                    return False
        return True

    def _is_one_round(self, pair: Pair, column: int) -> bool:
        """False if one side had decided that more often by then: what it decided anew, the other may only have before
        it. Calls that look alike align a rank that left one out with the others' round before."""
        numbers = {number for side in (0, 1) if (number := self._number(pair, side, column)) is not None}
        return len(numbers) < 2

    def _number(self, pair: Pair, side: int, column: int) -> int | None:
        """The how manieth time it is that the side decides that; None where not all times are counted."""
        act, trace_of = pair.act(side, column), self._trace(pair.ranks[side])
        if act is None or act.decided is None or trace_of is None or act.decided.key not in trace_of.counts:
            return None
        key = act.decided.key
        later = (each for each in trace_of.acts if each.decided is not None and each.decided.key == key)
        return sum(trace_of.counts[key].values()) - sum(each.at_ns > act.at_ns for each in later)

    def _raised_under(self, pair: Pair, found: Parting, ranks: tuple[int, int]) -> Parting | None:
        """The decision that led to the line that raised what one side alone caught there; None where none is seen."""
        side = next((n for n in (0, 1) if (act := pair.act(n, found.column)) is not None), 0)
        act, process = pair.act(side, found.column), self._ranks[ranks[side]].process
        if act is None or act.decided is None or not act.decided.catches or process is None:
            return None
        raised = next((each for each in process.caught if each.at_ns == act.at_ns), None)
        tree = self.sources.function(raised.file, raised.line) if raised is not None else None
        if raised is None or tree is None:
            return None
        frame = Frame(raised.file, raised.line, raised.function)
        for guard in reversed(guards(tree, raised.line)):
            key = condition_key(raised.file, guard.line, guard.condition)
            for column in range(found.column - 1, -1, -1):
                led = pair.act(side, column)
                if led is None or led.decided is None or led.decided.key != key:
                    continue
                if (led.step.value, not pair.is_alike(column)) == (str(guard.taken), True):
                    return replace(found, guard=guard, frame=frame, side=side, column=column)
                break
        return None

    def _trace(self, rank: int) -> Trace | None:
        if rank not in self._traces:
            self._traces[rank] = trace(self.sources, self._ranks[rank]) if rank in self._ranks else None
        return self._traces[rank]

    def _paired(self, *ranks: int) -> Pair | None:
        mine, theirs = map(self._trace, ranks)
        if mine is None or theirs is None:
            return None
        cut = mine.cut | theirs.cut
        mine, theirs = mine.without(cut), theirs.without(cut)
        stacks = [act.stack for side in (mine, theirs) for act in side.acts[-1:] if act.stack]
        asked = [each for stack in stacks for each in depends(self.sources, stack)]
        loops = sorted((each for each in asked if each[1].guard.kind == "loop"), key=lambda each: each[1].level)
        begun = together(mine, theirs, list(dict.fromkeys(key for key, _ in loops)))
        if begun is None:
            return None
        start, *sides = begun
        columns = align(*([act.step for act in side] for side in sides))
        return Pair(start, (sides[0], sides[1]), columns, (ranks[0], ranks[1]))


def _is_new(mine: Sequence[tuple[int, int]], theirs: Sequence[tuple[int, int]]) -> bool:
    """True if it came out so once, and otherwise before, on each of one side, and never on the other: of (how often so,
    how often otherwise) on each rank. Who has asked more often may only be further on."""
    often = max(map(sum, mine), default=0) <= min(map(sum, theirs), default=0)
    return bool(mine) and often and all(so == 1 and before for so, before in mine) and not any(so for so, _ in theirs)


def _split(counts: Mapping[str, int], led: Collection[str]) -> tuple[int, int]:
    """How often it came out as one of ``led``, and otherwise."""
    here = sum(count for value, count in counts.items() if value in led)
    return here, sum(counts.values()) - here
