"""How long collectives take and who comes late to them: how far apart the ranks issue one and the same call, and which
of them is last.

Example: rank 0 issues all_reduce #1 and #2 of a group at 10.0 and 11.0 s, rank 1 at 10.2 and 11.4 s → the ranks are
0.3 s apart in the median, 0.4 s at most, and rank 1 is last in 2 of 2. They completed at 10.3 and 11.4 s → they took
0.2 s in the median (0.3, 0.4, 0.1 and 0.0 s), 0.4 s at most.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hangdoc.model.journal import PHASES, Call, Journal
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

_MOST_CALLS = 2_000_000
"""Of all ranks together; of more, each rank's last ones are compared: some seconds of work. Judgement."""
_BYTES = {
    **{"Bool": 1, "Byte": 1, "Char": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "BFloat16": 2, "Float": 4},
    **{"Double": 8, "ComplexFloat": 8, "ComplexDouble": 16},
}
"""Bytes of an element, by the names that PyTorch's flight recorder gives the types; all Float8 types have one."""

_Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that was last. ``times``: in how many calls; ``seconds``: how long the others had waited for it, median
    of these calls, counted from the rank before it."""

    rank: int
    times: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one group. ``apart``: seconds between the first and the last rank that issued the same call:
    (median, 95th percentile, most); () where no call was seen on two ranks. ``compared``: how many were."""

    group: str
    members: tuple[int, ...]
    op: str
    calls: int
    """Different calls: one that four ranks issued counts once."""
    bytes: int
    """Of the inputs of one rank, all these calls together."""
    compared: int = 0
    apart: tuple[float, ...] = ()
    last: tuple[Late, ...] = ()
    """Most often first."""
    took: tuple[float, ...] = ()
    """Seconds of a call on a rank, (median, 95th percentile, most); () where no completion was recorded."""
    took_by: str = ""
    """What ``took`` says: 'kernel' (how long the device ran it) or 'issued' (from its issue to the moment at which the
    recorder noticed that it had completed); '' without it."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """A part of the training steps. ``seconds``: of all ranks together, (median, 95th percentile, most). ``slowest``:
    the rank with the longest median, and that median; None of one rank."""

    name: str
    count: int
    seconds: tuple[float, ...]
    slowest: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Lateness:
    """``since`` and ``until``: when the first and the last of the calls was issued, Unix seconds; 0 without calls.
    ``left_out``: ranks whose own times are not known."""

    operations: tuple[Operation, ...] = ()
    ranks: tuple[int, ...] = ()
    since: float = 0.0
    until: float = 0.0
    left_out: tuple[int, ...] = ()
    phases: tuple[PhaseTimes, ...] = ()
    """Only where they were recorded, in the order of a step."""


def lateness(job: JobSnapshot) -> Lateness:
    """What the histories of ``job`` tell, the groups and operations with the most calls first."""
    told = [(rank, rank.journal) for rank in job.ranks if rank.journal is not None and rank.journal.calls]
    timed = [(rank, journal) for rank, journal in told if not journal.issued_at]  # else the times are another's
    most = max(1, _MOST_CALLS // max(1, len(timed)))
    issued: dict[tuple[_Group, str], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[tuple[_Group, str], dict[int, int]] = defaultdict(dict)
    labels: dict[_Group, str] = {}
    took: dict[tuple[_Group, str], _Took] = defaultdict(_Took)
    times: list[int] = []
    for rank, journal in timed:
        groups = {group.name: group for group in journal.groups}
        for call in journal.calls[-most:]:
            known = groups.get(call.group)
            key = known.key if known is not None else (call.group, ())
            labels.setdefault(key, (known.description if known is not None else "") or call.group)
            issued[key, call.op][call.sequence].append((call.created_ns, rank.rank))
            sizes[key, call.op].setdefault(call.sequence, _bytes_of(call))
            took[key, call.op].add(call)
        times += _ends(journal, most)
    operations = [
        _operation(labels[group], group[1], op, calls, sizes[group, op], took[group, op])
        for (group, op), calls in issued.items()
    ]
    operations.sort(key=lambda each: (-each.calls, each.group, each.op))
    return Lateness(
        tuple(operations),
        tuple(sorted(rank.rank for rank, _ in timed)),
        min(times, default=0) / 1e9,
        max(times, default=0) / 1e9,
        tuple(sorted(_ranks_of(told) - _ranks_of(timed))),
        tuple(_phases(job)),
    )


class _Took:
    """How long the calls of one operation took. Where the device timed some, these alone count: what passes between the
    issue and the end has the calls before it on the device in it."""

    def __init__(self) -> None:
        self._kernels: list[float] = []
        self._whole: list[float] = []

    def add(self, call: Call) -> None:
        """Count the call in, as far as its times are known."""
        if call.duration_ns > 0:
            self._kernels.append(call.duration_ns / 1e9)
        elif call.completed and 0 < call.created_ns <= call.completed_ns:
            self._whole.append((call.completed_ns - call.created_ns) / 1e9)

    @property
    def found(self) -> tuple[tuple[float, ...], str]:
        """``Operation.took`` and ``Operation.took_by``."""
        if self._kernels:
            return _spread(self._kernels), "kernel"
        return _spread(self._whole), "issued" if self._whole else ""


def _phases(job: JobSnapshot) -> Iterator[PhaseTimes]:
    of_rank: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in PHASES}
    for rank in job.ranks:
        for phase in rank.journal.phases if rank.journal is not None else ():
            if phase.ended_ns and phase.name in of_rank:
                of_rank[phase.name][rank.rank].append((phase.ended_ns - phase.begun_ns) / 1e9)
    for name, ranks in of_rank.items():
        every = [value for values in ranks.values() for value in values]
        medians = [(median(values), rank) for rank, values in ranks.items()]
        slowest = (max(medians)[1], max(medians)[0]) if len(medians) > 1 else None
        if every:
            yield PhaseTimes(name, len(every), _spread(every), slowest)


def _ranks_of(some: Iterable[tuple[RankSnapshot, Journal]]) -> set[int]:
    return {rank.rank for rank, _ in some}


def _ends(journal: Journal, most: int) -> Iterator[int]:
    """When the rank issued the first and the last of its newest calls."""
    for call in (*journal.calls[-most:][:1], *journal.calls[-1:]):
        if call.created_ns:
            yield call.created_ns


def _bytes_of(call: Call) -> int:
    pairs = zip(call.input_sizes, call.input_dtypes, strict=False)
    return sum(math.prod(size) * _BYTES.get(dtype, int(dtype.startswith("Float8"))) for size, dtype in pairs)


def _operation(
    group: str,
    members: tuple[int, ...],
    op: str,
    calls: Mapping[int, Sequence[tuple[int, int]]],
    sizes: Mapping[int, int],
    took: _Took,
) -> Operation:
    apart: list[float] = []
    last: Counter[int] = Counter()
    waited: dict[int, list[float]] = defaultdict(list)
    for entries in calls.values():
        # Only a call that all members issued has a last one: who is missing may come later still.
        met = sorted(entry for entry in entries if entry[0])
        if len(met) < 2 or len(met) < len(members):
            continue
        apart.append((met[-1][0] - met[0][0]) / 1e9)
        (before, _), (latest, rank) = met[-2:]
        last[rank] += 1
        waited[rank].append((latest - before) / 1e9)
    late = tuple(Late(rank, times, median(waited[rank])) for rank, times in last.most_common())
    return Operation(group, members, op, len(calls), sum(sizes.values()), len(apart), _spread(apart), late, *took.found)


def _spread(values: list[float]) -> tuple[float, ...]:
    if not values:
        return ()
    ordered = sorted(values)
    return median(ordered), ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)], ordered[-1]
