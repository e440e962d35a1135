"""A call in which ranks wait: who is in it, who is not, since when; and what may be said of unlike sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hangdoc.model.logged import Overdue
from hangdoc.model.operations import operation


@dataclass(frozen=True, slots=True)
class CallKey:
    """One call of one group."""

    group: str
    sequence: int
    op: str = ""
    """Of calls without a number, which are told apart by the operation alone."""

    @property
    def numbered(self) -> bool:
        """False where torch (before 1.13), or gloo, prints no number: such calls are not compared."""
        return self.sequence >= 0


@dataclass(frozen=True)
class Meeting:
    """A call in which ranks are overdue. ``members`` are those that are known, ``size`` is how many there are (0: not
    known).

    ``arrived`` are those that wait in it, or have enqueued it by their own count; ``missing`` the other members.
    """

    key: CallKey
    waiting: Mapping[int, Overdue]
    arrived: frozenset[int]
    members: frozenset[int]
    size: int

    @cached_property
    def missing(self) -> frozenset[int]:
        """Known members that nothing shows in the call."""
        return self.members - self.arrived

    @property
    def has_all(self) -> bool:
        """True if every member is known to have issued the call."""
        return bool(self.size) and len(self.arrived) >= self.size

    @cached_property
    def first_at(self) -> float:
        """When the first of them was found overdue; 0.0: not said."""
        return min((call.at for call in self.waiting.values() if call.at), default=0.0)

    @property
    def since(self) -> float:
        """When the earliest of them issued it; 0.0: not said."""
        return min((c.at - c.ran_ms / 1000 for c in self.waiting.values() if c.at and c.ran_ms), default=0.0)

    @property
    def op(self) -> str:
        """The operation that most have called."""
        return Counter(call.op for call in self.waiting.values()).most_common(1)[0][0]


def needs_equal_sizes(op: str) -> bool:
    """True if every rank must put in as much: not for exchanges, messages, and what a root alone has."""
    return op in ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "COALESCED") or (
        op.islower() and operation(op).sized and not operation(op).exchange and not operation(op).message
    )


def minority(sides: Iterable[frozenset[int]]) -> frozenset[int] | None:
    """The one side that is smaller than all others together; None where two could be, or there are too few ranks."""
    ordered = sorted(sides, key=len)
    total = sum(map(len, ordered))
    if total < 3 or len(ordered) < 2 or len(ordered[-1]) * 2 <= total:
        return None
    return frozenset().union(*ordered[:-1])
