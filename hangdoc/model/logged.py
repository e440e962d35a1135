"""What the logs of a job say, line by line, before anybody draws a conclusion from it.

Every fact carries its ``Place``: file, line and kind of source. A rank is always the *global* one; a rank within a
group is called member, and the one within a host local rank. Times are Unix seconds by the clock of the host that
wrote the line (torch's own lines leave out the year, which is then that of the file); 0.0 where the line has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from hangdoc.model.process import Stack


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a fact stands: ``line`` counts from 1; ``kind`` names the format ('watchdog', 'torchelastic', 'RAS')."""

    file: str
    line: int
    kind: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A rank's watchdog found a call of its own overdue: 'Watchdog caught collective operation timeout: WorkNCCL(…)'.

    ``group``: its unique id with the description, '9(mesh_tp)', '' where the line has none (torch before 2.3).
    ``sequence``, ``numel_in``, ``numel_out`` and ``member``: -1 where they are not said. ``stack``: who issued the
    call.
    """

    place: Place
    rank: int | None
    group: str
    sequence: int
    op: str
    member: int = -1
    numel_in: int = -1
    numel_out: int = -1
    timeout_ms: int = 0
    ran_ms: int = 0
    at: float = 0.0
    stack: Stack = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rank is in a group, as its process group counts: the last call enqueued, started, completed.

    -1: none, or not said. ``sequence`` is the call that the line is about, -1 where it is about none.
    """

    place: Place
    rank: int | None
    group: str
    enqueued: int
    completed: int
    started: int = -1
    sequence: int = -1
    member: int = -1
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Alive:
    """A rank's heartbeat thread answered another rank's call for dumps, so its process lived then.

    ``caller``: the rank that called first, None where the line does not say it. ``own``: it was this rank's own
    time-out.
    """

    place: Place
    rank: int | None
    caller: int | None = None
    own: bool = False
    at: float = 0.0
    stuck: bool = False
    """Not an answer, but its heartbeat monitor's word that the watchdog thread itself makes no progress: something of
    this rank's blocks a call of CUDA's or holds Python's lock."""


@dataclass(frozen=True, slots=True)
class Member:
    """A rank's place in a group of ``size`` ranks (0: not said), from a line that names all three."""

    place: Place
    group: str
    member: int
    rank: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """A report of torch's own says that ranks have not come to a call, or have come to it and not left it.

    'desync report', 'torchfrtrace', 'monitoredBarrier', 'RAS'. ``sequence``: -1 where it is not said. ``ranks`` have
    not joined; ``joined`` have. ``whole``: every member is in one of the two.
    """

    place: Place
    group: str
    sequence: int
    op: str
    ranks: tuple[int, ...]
    joined: tuple[int, ...] = ()
    whole: bool = False
    stack: Stack = ()


@dataclass(frozen=True, slots=True)
class Call:
    """What one rank, or several, put into a call: a fingerprint of DETAIL, a line of NCCL_DEBUG_SUBSYS=COLL, a
    mismatch that torchfrtrace found. ``sizes``, ``dtype`` and ``root`` as printed; '' where they are not said.

    ``empty``: a fingerprint without number and tensors, which stands for no call at all.
    """

    place: Place
    ranks: tuple[int, ...]
    group: str
    sequence: int
    op: str
    sizes: str = ""
    dtype: str = ""
    root: str = ""
    empty: bool = False
    stack: Stack = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """gloo aborted a rank that got a piece of ``got`` bytes where it expected at most ``expected``."""

    place: Place
    rank: int | None
    got: int
    expected: int


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """A rank that came to monitored_barrier says in what it failed: 'send' or 'recv' with ``peer`` (rank 0)."""

    place: Place
    rank: int | None
    direction: str
    peer: int = 0


@dataclass(frozen=True, slots=True)
class SetUp:
    """A rank waited for the rendezvous in vain.

    ``kind``: 'clients' (``joined`` of ``expected`` came), 'unique id' (``rank``, a member of a group, waits for the
    NCCL id of member 0), 'connect' (``target`` did not answer), 'keys' (``target`` was not set).
    """

    place: Place
    kind: str
    rank: int | None = None
    joined: int = -1
    expected: int = -1
    target: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank ended, as its launcher tells it. ``status`` and ``signal``: None where not said.

    ``asked``: its launcher had told it to end before. ``first``: the launcher calls it the first failure of its host.
    """

    place: Place
    rank: int | None
    local_rank: int | None = None
    pid: int = 0
    host: str = ""
    status: int | None = None
    signal: int | None = None
    asked: bool = False
    first: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Raised:
    """A traceback. ``error``: type and text; ``follows``: it can only follow from a hang's abort, or is torch's word of
    one (an error of a communicator that was aborted, a connection that its peer closed)."""

    place: Place
    rank: int | None
    error: str
    stack: Stack
    follows: bool = False
    at: float = 0.0


WAIT = "wait"
"""The kind of a stack that no tool printed: that of a call which its rank told to be overdue."""


@dataclass(frozen=True, slots=True)
class LogStack:
    """The stack of one thread, from py-spy, faulthandler, gdb or pystack. ``frames``: innermost first; of a short file
    name that is a library's, 'site-packages/torch/…'. ``native``: the frames are C's.

    ``dump``: the line of ``place.file`` with which what was seen of its process begins. ``pid`` and ``tid``: 0 where
    they are not said. ``idle``: None where the tool does not say. ``world_size``: 0 where nothing beside it says it.
    """

    place: Place
    rank: int | None
    pid: int
    thread: str
    frames: Stack
    main: bool = False
    idle: bool | None = None
    native: bool = False
    tid: int = 0
    dump: int = 0
    world_size: int = 0
    gil: bool | None = None
    """It held the interpreter's lock; None where the tool does not say."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What one rank wrote: the first and the last line that is nobody's aftermath, and when.

    ``whole``: it goes on to the end of the job, as far as one can tell; ``work`` is the last line of the program's own.
    """

    place: Place
    rank: int | None
    last: str = ""
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that was read. ``lines`` and ``size`` (bytes, unpacked) of what was read. ``cut`` says what was left out
    of it and why, '' where nothing was. ``folded``: repeated lines were left out by who wrote it."""

    path: str
    kind: str
    lines: int
    size: int
    cut: str = ""
    folded: bool = False
    modified: float = 0.0
    """When it was last written, in Unix time; 0.0: not known."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line as it was written, without colours. ``telling``: it has a mark by which facts are looked for; ``end``: it
    is one of the last of its file."""

    file: str
    number: int
    text: str
    telling: bool = True
    end: bool = False


@dataclass(frozen=True, slots=True)
class Logged:
    """All that was read, in the order of files and lines. ``attempt``: these facts are of the last of so many."""

    files: tuple[LogFile, ...] = ()
    overdue: tuple[Overdue, ...] = ()
    progress: tuple[Progress, ...] = ()
    alive: tuple[Alive, ...] = ()
    members: tuple[Member, ...] = ()
    behind: tuple[Behind, ...] = ()
    calls: tuple[Call, ...] = ()
    barriers: tuple[BarrierWait, ...] = ()
    refused: tuple[Refused, ...] = ()
    set_ups: tuple[SetUp, ...] = ()
    ends: tuple[Ended, ...] = ()
    raised: tuple[Raised, ...] = ()
    stacks: tuple[LogStack, ...] = ()
    streams: tuple[Stream, ...] = ()
    attempts: int = 1
    torch: str = ""
    """The versions whose lines these are: '2.6-2.12'."""
    lines: tuple[LogLine, ...] = ()
    """The lines themselves in which the facts stand, for people; of very many the first and the last of each file."""


def together(parts: Sequence[Logged]) -> Logged | None:
    """What several parts say, each fact once, by file and line; None of no part."""
    if not parts:
        return None
    merged: dict[str, object] = {"attempts": max(part.attempts for part in parts)}
    merged["torch"] = next((part.torch for part in parts if part.torch), "")
    for each in fields(Logged):
        if each.name in merged:
            continue
        facts = dict.fromkeys(fact for part in parts for fact in getattr(part, each.name))
        merged[each.name] = tuple(sorted(facts, key=_order))
    return Logged(**merged)  # type: ignore[arg-type]


def _order(fact: LogFile | LogLine | Overdue) -> tuple[str, int, str]:
    if isinstance(fact, LogFile):
        return fact.path, 0, ""
    if isinstance(fact, LogLine):
        return fact.file, fact.number, fact.text
    return fact.place.file, fact.place.line, repr(fact)
