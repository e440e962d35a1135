"""What a rank communicated, in program order: collectives, point-to-point calls, waits on the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hangdoc.model.process import Raised, Stack


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group as one rank knows it. Groups of two ranks are the same group if name and members agree."""

    name: str
    members: tuple[int, ...]
    """Global ranks in group order; empty where it could not be read."""
    description: str = ""
    backend: str = ""
    created_at: int = -1
    """Index into ``Journal.stacks`` of the stack that made the group; -1: not seen."""
    destroyed: bool = False
    """The rank has destroyed it since: it needs no connections any more."""

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """What identifies the group across ranks."""
        return self.name, self.members


@dataclass(frozen=True, slots=True)
class Call:
    """One collective. ``sequence`` counts the group's collectives from 1, ``op_id`` its collectives and
    point-to-point calls together (0: not known). ``stack`` indexes ``Journal.stacks``: the whole stack that issued
    it."""

    group: str
    sequence: int
    op_id: int
    op: str
    stack: int
    input_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    created_ns: int = 0
    completed: bool = True
    thread_id: int = 0
    thread_name: str = ""
    timeout_ms: int = 0
    root: int | None = None
    """A rooted operation's src or dst as its place among the group's members, where the probe saw it."""
    state: str = ""
    """'scheduled', 'started' (its kernel runs) or 'completed', where a device executes the calls; '' where the backend
    knows only whether a call has completed (gloo)."""
    started_ns: int = 0
    """When the recorder noticed that the kernel runs; 0 where it did not, or was not asked to time kernels."""
    completed_ns: int = 0
    """When the recorder noticed that the call had completed; 0 where it did not, or keeps no such time (gloo's)."""
    duration_ns: int = 0
    """How long the kernel ran, as the device timed it; 0 where it was not asked to (TORCH_NCCL_ENABLE_TIMING)."""
    output_sizes: tuple[tuple[int, ...], ...] = ()
    """Of an exchange (all_to_all), whose ranks have to agree on what each sends the others; of other calls they are not
    kept."""


if TYPE_CHECKING:
    Calls = Sequence[Call]
else:
    Calls = tuple[Call, ...]  # what is read from a file; in memory ranks may share them (``shared_calls``)


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """One send, recv, recv_anysource or monitored_barrier, recorded by the probe.

    ``peer`` is the global rank (-1: any source, or a monitored_barrier). ``completed``: the Python call has returned,
    and its work has completed too, if the program still holds it.
    """

    group: str
    op_id: int
    op: str
    peer: int
    tag: int
    stack: int
    created_ns: int = 0
    completed: bool = True
    thread_id: int = 0
    state: str = ""
    """As of ``Call``."""
    started_ns: int = 0
    completed_ns: int = 0
    duration_ns: int = 0
    """All three as of ``Call``."""
    batch: int = 0
    """Number of the batch that it was issued in, with all others of that number in the group; 0: alone."""
    timeout_ms: int = 0
    sizes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class StoreWait:
    """A wait on the rendezvous store that had not ended when the journal was taken."""

    operation: str
    keys: tuple[str, ...]
    stack: int
    thread_id: int = 0


PHASES = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a training step. ``name``: one of ``PHASES``; ``ended_ns`` 0: under way.

    A forward pass is what lies between a batch and the backward pass after it, the loss included.
    """

    name: str
    begun_ns: int
    ended_ns: int = 0
    thread_id: int = 0


@dataclass(frozen=True, slots=True)
class Attribute:
    """A plain value that a user frame can see and py-spy does not show: an attribute, or a global.

    Read after a confirmed stall, strings masked.
    """

    file: str
    line: int
    function: str
    name: str
    value: str
    owner: str = "self"
    """The object that has the attribute: 'self', 'self.config', 'args'; '' for a global."""


@dataclass(frozen=True, slots=True)
class Journal:
    """Everything that a rank's flight recorder and probe reported."""

    source: str
    """'probe', 'dump' (a file written by the job) or 'injection'."""
    groups: tuple[ProcessGroup, ...] = ()
    calls: Calls = ()
    """In the order they were issued. Older ones may have left the ring: see ``Call.sequence``."""
    point_to_points: tuple[PointToPoint, ...] = ()
    """In the order they were issued, the newest only where some are forgotten."""
    forgotten: int = 0
    """Older calls that had left the ring which ``point_to_points`` is read from."""
    store_waits: tuple[StoreWait, ...] = ()
    stacks: tuple[Stack, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    traces: tuple[Attribute, ...] = ()
    """What objects have counted and collected: ``function`` is the class, or the function or module of a name; ``name``
    is 'dropped', 'len(results)', or 'stats[3]' for a number under one of the strings of the code."""
    counters: tuple[tuple[str, int, int], ...] = ()
    """(group name, last enqueued op_id, last completed op_id) of each group."""
    failure: str = ""
    """Type name of the uncaught exception that ended the main program of a process that still lives."""
    failed_at: Stack = ()
    """Where it was raised, innermost first."""
    handled: str = ""
    """Type name of the exception whose except or finally suite the main thread runs."""
    handled_at: Stack = ()
    """Where that one was raised, innermost first."""
    handled_message: str = ""
    """The text of that one."""
    handled_from: tuple[Raised, ...] = ()
    """What that one was raised from, as of ``ProcessExit``."""
    written_ns: int = 0
    """Of a dump: the time of its file, in Unix ns. A copy may carry the time of the copying; 0: unknown."""
    latest_ns: int = 0
    """Of a dump: the latest time in it (a call issued, or found to have started or completed), in Unix ns."""
    moved_ns: int = 0
    """Of a dump: when the last call was issued, or completed and was retired, in Unix ns."""
    gave_up: tuple[int, ...] = ()
    """Of a dump: places in ``calls`` of those that PyTorch gave up on: its watchdog retired them though they had not
    completed. A rank whose probe answers has no such calls yet, and tells the time by its own clock."""
    unsure_numbers: tuple[str, ...] = ()
    """Groups whose calls' numbers may be off by the same amount: batches that the ring has lost took some of them."""
    status: tuple[tuple[str, int, int, int], ...] = ()
    """Of a dump: (group, last call enqueued, started, completed) as the backend itself counts the collectives of each
    group; -1: not said. Only a dump may lack calls that completed: a probe asks for all."""
    issued_at: tuple[tuple[str, int, int], ...] = ()
    """('call' or 'message', place, when this rank issued it in Unix ns) of the first ones under way and the last, where
    the entries of ``calls`` and ``point_to_points`` are those of several ranks and have the times of another."""
    active_only: bool = False
    """A dump without any completed call: what is not in it may have completed (TORCH_INCLUDE_ONLY_ACTIVE)."""

    phases: tuple[Phase, ...] = ()
    """Only where the watch was told to record them, the newest."""

    @property
    def is_history(self) -> bool:
        """False where no call or message is known: of a recorder that is off, or that this torch lacks."""
        return bool(self.calls or self.point_to_points)

    @property
    def waiting(self) -> bool:
        """True if a call, a message or a store wait has not completed."""
        done = all(call.completed for call in self.calls) and all(p.completed for p in self.point_to_points)
        return bool(self.store_waits) or not done

    def call_issued_ns(self, place: int) -> int:
        """When this rank issued the call at that place."""
        own = (at for kind, where, at in self.issued_at if (kind, where) == ("call", place))
        return next(own, self.calls[place].created_ns)

    def message_issued_ns(self, place: int) -> int:
        """When this rank issued the message at that place."""
        own = (at for kind, where, at in self.issued_at if (kind, where) == ("message", place))
        return next(own, self.point_to_points[place].created_ns)

    @property
    def has_all_messages(self) -> bool:
        """True if ``point_to_points`` has every message that the rank ever issued.

        Injected code finds no ring, and a dump without messages may come from a backend that does not record them.
        """
        recorded = self.source == "probe" or bool(self.source == "dump" and self.point_to_points)
        return recorded and not self.forgotten

    def stack(self, index: int) -> Stack:
        """The stack with that index; empty for -1."""
        return self.stacks[index] if 0 <= index < len(self.stacks) else ()
