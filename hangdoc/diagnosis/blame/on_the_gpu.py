"""All have issued the call that the job hangs in: whose device has not come to it, and whose kernel does not end?

A rank that never issued the call is no question of devices: the wait-for graph names it. Here every member has issued
the call, with equal arguments, and is at it. Where the recorders timed kernels, a rank whose kernel has not begun
while others' run is the one that they wait for: something before it on its device (a kernel, a copy, an event) does not
end. Where all run, the call itself does not end. Where kernels were not timed, either may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.streams import Kernel
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class DeviceStuck(Explanation):
    """All ranks of a call have issued it, and it does not end."""

    members: tuple[int, ...]
    """The ranks of the call that were seen."""
    call: Token | None
    """The call as one of them issued it; None for a message."""
    running: tuple[int, ...]
    """Those whose kernel is known to run."""
    completed: tuple[int, ...]
    """Those whose kernel is known to have ended: they are past the call."""
    waiting: tuple[int, ...]
    """Those whose kernel is known not to have begun."""
    untimed: tuple[int, ...]
    """Those of which it is not known."""
    label: str = ""
    """The group's name for people."""
    alike: tuple[DeviceStuck, ...] = ()
    """Calls of further groups in which the devices stand in the same way."""

    @property
    def late(self) -> tuple[int, ...]:
        """Those that the others wait for, as far as that is known."""
        if not self.running and not self.completed:
            return ()
        return self.waiting or (self.untimed if len(self.untimed) == 1 else ())

    @property
    def is_timed(self) -> bool:
        """True if the late kernels of all groups are known not to have begun."""
        return all(each.waiting for each in (self, *self.alike))


class Stands(NamedTuple):
    """How the devices stand in several calls, together."""

    late: tuple[int, ...]
    running: tuple[int, ...]
    completed: tuple[int, ...]

    @classmethod
    def of(cls, calls: Iterable[DeviceStuck]) -> Stands:
        """Of these calls."""
        several = [(each.late, each.running, each.completed) for each in calls]
        return cls(*(tuple(sorted(chain.from_iterable(ranks))) for ranks in zip(*several, strict=True)))


def stuck_device(case: Case) -> Blame[DeviceStuck] | None:
    """The first call that all its members are at, where every other rank waits for one of these, with those of other
    groups in which a device is late as well; None where there is none, or where a rank that others wait for is at no
    call: it has not issued theirs.

    Example: of 16 ranks in tensor-parallel groups of two, ranks 12 and 14 have each issued a call that rank 13, or 15,
    has completed → both ranks.
    """
    if not case.streams:
        return None
    waiting = {w.waiter for w in case.graph.waits}
    at = [rank for rank in case.streams.fronts if rank not in waiting and rank in case.seen]
    if not at or any(rank not in case.streams.fronts for rank in case.graph.roots):
        return None
    at.sort(key=lambda rank: (case.streams.fronts[rank].created_ns, rank))
    first = at[0]
    if case.activities[first].kind in MESSAGES:
        return _blamed(_in_messages(case, first))
    found = _in_call(case, first)
    if found is None:
        return None
    alike: list[DeviceStuck] = []
    seen = set(found.members)
    for rank in at if found.late else ():
        other = _in_call(case, rank) if rank not in seen else None
        if other is not None and other.late and seen.isdisjoint(other.members):
            alike.append(other)
            seen |= set(other.members)
    return _blamed(replace(found, alike=tuple(alike)))


def _in_call(case: Case, rank: int) -> DeviceStuck | None:
    activity = case.activities[rank]
    history = next((h for h in case.histories if h.key == (activity.group, activity.members)), None)
    if activity.kind != ActivityKind.IN_COLLECTIVE or history is None or activity.sequence is None:
        return None
    sequence = activity.sequence
    members = tuple(r for r in history.members if r in case.programs)
    kernels = {r: case.streams.kernel(history, r, sequence) for r in members}
    return _sorted(members, history.at(rank, sequence), kernels, history)


def _sorted(
    members: tuple[int, ...], call: Token | None, kernels: dict[int, Kernel], history: GroupHistory | None = None
) -> DeviceStuck:
    def of(*which: Kernel) -> tuple[int, ...]:
        return tuple(rank for rank, kernel in kernels.items() if kernel in which)

    label = history.label if history is not None else ""
    running, completed = of(Kernel.RUNNING), of(Kernel.DONE)
    return DeviceStuck(members, call, running, completed, of(Kernel.WAITING), of(Kernel.UNTIMED), label)


def _in_messages(case: Case, rank: int) -> DeviceStuck:
    """The same of messages whose other sides were issued as well."""
    front = case.streams.fronts[rank]
    ranks = tuple(sorted({rank, *(m.peer for m in front.messages if m.peer in case.programs)}))
    kernels = {}
    for each in ranks:
        own = case.streams.fronts.get(each)
        if own is None:
            kernels[each] = Kernel.DONE
        elif own.started:
            kernels[each] = Kernel.RUNNING
        else:
            kernels[each] = Kernel.WAITING if each in case.streams.timed else Kernel.UNTIMED
    return _sorted(ranks, None, kernels)


def _blamed(found: DeviceStuck) -> Blame[DeviceStuck]:
    late, running, completed = Stands.of((found, *found.alike))
    begun = f"the kernels of {ranks_text(running)} run" if running else ""
    ended = f"{ranks_text(completed)} completed the call" if completed else ""
    seen = "; ".join(filter(None, (begun, ended)))
    if late and found.is_timed:
        sure = f"{seen}, and {ranks_text(late)} issued the call as well"
        return Blame(found, late, confidence=Confidence.LIKELY, sure=sure)
    if late:
        sure = f"{seen}; how far {ranks_text(late)} came with it was not recorded"
        return Blame(found, late, (), confidence=Confidence.POSSIBLE, sure=sure)
    if seen and not found.untimed and not found.waiting:
        sure = seen if completed else "the kernels of all ranks of the call run"
        return Blame(found, confidence=Confidence.LIKELY, sure=sure)
    open_ = "when kernels began was not recorded (TORCH_NCCL_ENABLE_TIMING=1 records it)"
    return Blame(found, (), tuple((rank,) for rank in found.untimed or found.waiting), sure=open_)
