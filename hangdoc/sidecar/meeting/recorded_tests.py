"""What ranks recorded of their tests, as a digest tells it: some kilobytes a rank.

The places of the tests are listed once for all ranks of a host. Calls may come from another rank that did the same,
with its times (``pieces``), so the digest tells between which calls each test came out, and not when. Of a rank that
did too much for it, the digest has the end; all of it (``Ring``) is sent if the lead asks.

Example: a rank tested three things after its last call but one, two after the last → ``stretches`` ((1, 3), (0, 2)).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hangdoc.model.branches import MOST_BRANCHES, MOST_CAUGHT, MOST_TAKEN, BranchCounts, Caught, Taken
from hangdoc.model.encode import value_to_bytes
from hangdoc.model.journal import Journal
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable

LARGEST = 4 << 10
"""Bytes of a rank, compressed; of one that takes more, only the last ``_STRETCHES`` are sent, and then counts alone."""
_STRETCHES = 2
"""Between calls, the one under way among them."""
_SOME, _WHOLE, _CUT = "-wc"


@dataclass(frozen=True, slots=True)
class Recorded:
    """``Process.branches`` and ``Process.taken`` of one rank."""

    rank: int
    """Index into ``JobSnapshot.ranks``."""
    tests: tuple[int, ...]
    """Rows of ``Digest.tests``, each with its ``counts``, ``last`` and one letter of ``kept``."""
    counts: tuple[tuple[int, int], ...]
    last: tuple[str, ...]
    kept: str
    """'w': the counts are whole; 'c': the probe has given up on the test."""
    taken: tuple[int, ...] = ()
    """Places in ``tests``, the newest last, with their ``values``."""
    values: str = ""
    stretches: tuple[tuple[int, int], ...] = ()
    """(how many calls and messages the rank issued after these, how many tests these are), the oldest first."""
    since: tuple[int, ...] = ()
    """For each of ``tests``, since how many of the last calls and messages all of it is there; -1: all is."""
    caught: tuple[tuple[int, str, str, int, str], ...] = ()
    """(place in ``taken``, exception, file, line, function), as of ``model.branches.Caught``."""
    ring: str = ""
    """The identity of its ``Ring``, where that has more."""


@dataclass(frozen=True, slots=True)
class Ring:
    """All that a rank tested in order; of ranks that did the same the same. Fields as of ``Recorded``."""

    tests: tuple[BranchCounts, ...]
    """Without counts."""
    taken: tuple[int, ...]
    values: str
    stretches: tuple[tuple[int, int], ...]
    since: tuple[int, ...]
    caught: tuple[tuple[int, str, str, int, str], ...]

    def put_into(self, found: Recorded, tests: Sequence[BranchCounts]) -> Recorded:
        """``found``, of a digest with these ``tests``, with all of it; as it is where they do not belong together."""
        if not all(0 <= row < len(tests) for row in found.tests) or self.tests != tuple(tests[n] for n in found.tests):
            return found
        whole = {name: getattr(self, name) for name in ("taken", "values", "stretches", "since", "caught")}
        return replace(found, **whole)


class Folded:
    """Takes the tests out of the ranks of one host."""

    def __init__(self) -> None:
        self._rows: dict[BranchCounts, int] = {}
        self.ranks: list[Recorded] = []

    @property
    def tests(self) -> tuple[BranchCounts, ...]:
        """All ranks' tests, without counts."""
        return tuple(self._rows)

    def rank(self, rank: RankSnapshot, index: int, name: Callable[[Ring], str]) -> RankSnapshot:
        """The rank without its tests. ``name``: keeps what is left out of the digest, and gives its identity."""
        process = rank.process
        if process is None or not process.branches:
            return rank
        whole = self._recorded(process, rank.journal, index)
        found = _brief(whole)
        if found is not whole:
            tests = [*self._rows]
            ring = Ring(
                tuple(tests[row] for row in whole.tests),
                *(whole.taken, whole.values, whole.stretches, whole.since, whole.caught),
            )
            found = replace(found, ring=name(ring))
        self.ranks.append(found)
        return replace(rank, process=replace(process, branches=(), taken=(), caught=()))

    def _recorded(self, process: Process, journal: Journal | None, index: int) -> Recorded:
        branches = process.branches[:MOST_BRANCHES]
        bare = (replace(each, counts=(0, 0), last="", whole=False, cut=False, since_ns=0) for each in branches)
        taken = [each for each in process.taken[-MOST_TAKEN:] if 0 <= each.branch < len(branches)]
        issued = _issued(journal)
        after = (len(issued) - bisect_left(issued, each.at_ns) for each in taken)
        at = {(each.branch, each.at_ns): number for number, each in enumerate(taken)}
        return Recorded(
            index,
            tuple(self._rows.setdefault(each, len(self._rows)) for each in bare),
            tuple(each.counts for each in branches),
            tuple(each.last for each in branches),
            "".join(_CUT if each.cut else _WHOLE if each.whole else _SOME for each in branches),
            tuple(each.branch for each in taken),
            "".join(each.value for each in taken),
            tuple((number, len(list(some))) for number, some in groupby(after)),
            tuple(len(issued) - bisect_left(issued, each.since_ns) if each.since_ns else -1 for each in branches),
            tuple(
                (at[each.branch, each.at_ns], each.exception, each.file, each.line, each.function)
                for each in process.caught[-MOST_CAUGHT:]
                if (each.branch, each.at_ns) in at
            ),
        )


def with_tests(
    rank: RankSnapshot, found: Recorded, tests: Sequence[BranchCounts], journal: Journal | None
) -> RankSnapshot:
    """The rank with its tests again, at times that fit those of the journal. What does not fit is left out."""
    if (
        rank.process is None
        or not len(found.tests) == len(found.counts) == len(found.last) == len(found.kept) <= MOST_BRANCHES
    ):
        return rank
    if not all(0 <= row < len(tests) for row in found.tests):
        return rank
    parts = zip(found.tests, found.counts, found.last, found.kept, strict=True)
    issued = _issued(journal)
    since = dict(enumerate(found.since))
    branches = tuple(
        replace(
            tests[row],
            counts=counts,
            last=last,
            whole=kept == _WHOLE,
            cut=kept == _CUT,
            since_ns=_since(since.get(number, -1), issued),
        )
        for number, (row, counts, last, kept) in enumerate(parts)
    )
    times = _times(found.stretches, issued)
    taken = tuple(Taken(*each) for each in zip(found.taken[:MOST_TAKEN], found.values, times, strict=False))
    caught = tuple(
        Caught(taken[at].branch, taken[at].at_ns, exception, file, line, function)
        for at, exception, file, line, function in found.caught[:MOST_CAUGHT]
        if 0 <= at < len(taken)
    )
    return replace(rank, process=replace(rank.process, branches=branches, taken=taken, caught=caught))


def without_tests(job: JobSnapshot) -> JobSnapshot:
    """The job without what its ranks recorded of their tests."""
    ranks = tuple(
        replace(rank, process=replace(rank.process, branches=(), taken=(), caught=()))
        if rank.process is not None
        else rank
        for rank in job.ranks
    )
    note = Unavailable("branches", "what the ranks recorded of their branches is too large for a digest")
    return replace(job, ranks=ranks, unavailable=(*job.unavailable, note))


def _brief(found: Recorded) -> Recorded:
    """As much of it as fits; the counts are always told."""
    if len(value_to_bytes(found)) <= LARGEST:
        return found
    kept = tuple(each for each in found.stretches if each[0] < _STRETCHES)
    count = sum(tests for _, tests in kept)
    start = len(found.taken) - count
    brief = replace(
        found,
        taken=found.taken[start:],
        values=found.values[start:],
        stretches=kept,
        since=tuple(each if 0 <= each < _STRETCHES else _STRETCHES for each in found.since),
        caught=tuple((each[0] - start, *each[1:]) for each in found.caught if each[0] >= start),
    )
    if len(value_to_bytes(brief)) <= LARGEST:
        return brief
    return replace(brief, taken=(), values="", stretches=(), since=(0,) * len(found.since), caught=())


def _issued(journal: Journal | None) -> list[int]:
    """When calls and messages were issued, in order."""
    if journal is None:
        return []
    calls = (journal.call_issued_ns(place) for place in range(len(journal.calls)))
    messages = (journal.message_issued_ns(place) for place in range(len(journal.point_to_points)))
    return sorted(at for at in (*calls, *messages) if at)


def _since(after: int, issued: Sequence[int]) -> int:
    """When the first of the last ``after`` calls was issued; behind all that the rank did where it is none of them."""
    if not 0 <= after <= len(issued):
        return 0
    return issued[len(issued) - after] if after else (issued[-1] if issued else 0) + MOST_TAKEN + 1


def _times(stretches: Iterable[tuple[int, int]], issued: Sequence[int]) -> Iterator[int]:
    """Just behind the call before each stretch; before the first call, with it."""
    for after, count in stretches:
        place = len(issued) - after
        end = issued[place] if 0 <= place < len(issued) else 0
        begin = issued[place - 1] + 1 if 0 < place <= len(issued) else end or 1
        for number in range(min(count, MOST_TAKEN)):
            yield min(begin + number, end) if end else begin + number
