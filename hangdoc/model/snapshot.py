"""The job, frozen: everything a diagnosis may use, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.journal import Journal
from hangdoc.model.logged import Logged
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Process, ProcessExit, Stack
from hangdoc.model.store import RendezvousStore

SNAPSHOT_SCHEMA = "hangdoc.snapshot/1"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A source that could not be read: which, why, and what would help. Data, not an exception."""

    what: str
    """'stack', 'journal', 'sockets', 'source', 'log', 'process', 'groups', …"""
    why: str
    remedy: str = ""
    rank: int | None = None


NO_PROBE = "there is no probe in this process"
"""Why a rank's journal is missing that nobody started under ``watch``: its past is there, and was not asked for."""
DUMPS = "dumps"
"""What a note is of that says what the dumps of a job leave out, and which setting would show it."""


MODULES = "modules"
"""What a note is of that says which of the program's modules were not kept whole."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines a rank wrote, where its output goes to a file."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A line of the job's output in which texts of the program stand.

    ``places``: (file, line) of these texts, that of the most letters first. ``rank``: who wrote it, None where the line
    does not tell and the file is no rank's own. ``output`` is the file's path, and ``number`` the line's in
    what was read of it.
    """

    text: str
    places: tuple[tuple[str, int], ...]
    rank: int | None = None
    output: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback in the job's output. ``announced``: how Python tells what ended a thread or a child ('Exception in
    thread feed:'), '' of one that was logged. ``rank``: as that of ``Written``."""

    announced: str
    frames: Stack
    error: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class SourceText:
    """The source of one function (or module) involved, string literals scrubbed unless asked for.

    ``first_line`` is the line number of the text's first line in ``file``. ``function`` is the plain code
    name, '<module>' for a module body. ``cell`` is the number of the notebook's cell that the file stands for, In[3].
    """

    file: str
    function: str
    first_line: int
    text: str
    cell: int = 0

    def holds(self, line: int) -> bool:
        """True if that line of the file is one of the text's."""
        return self.first_line <= line < self.first_line + self.text.count("\n") + 1

    def lines(self) -> dict[int, str]:
        """The text's lines by their number in the file."""
        return dict(enumerate(self.text.split("\n"), self.first_line))


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the user's program, whole: string literals scrubbed unless asked for, lines as they are.

    Hidden texts carry marks (``marks.py``) by which two places can be seen to name one thing; ``marks`` names the
    capture that made them, '' where there are none. ``words``: (a word that the text shows, its mark), as a word
    is shown where something is compared with it, and hidden elsewhere. ``digest`` is 'sha256:…' of the file's bytes.
    """

    file: str
    digest: str
    text: str = ""
    """'' of a file of which another host has sent its digest alone."""
    marks: str = ""
    words: tuple[tuple[str, str], ...] = ()
    cell: int = 0
    """As of ``SourceText``."""

    def bare(self) -> Module:
        """Its file and digest alone."""
        return Module(self.file, self.digest)


@dataclass(frozen=True, slots=True)
class RankSnapshot:
    """One rank. A source that could not be read leaves None or an empty value, and an ``Unavailable`` in the job."""

    rank: int
    host: str
    identity: str
    """The source of the rank's number: 'probe', 'environment', 'launcher', 'locals', 'store', 'order' (numbered by
    age), 'log' (what stands beside its stack); 'expected': never seen; 'unseen': never seen, and a process of the job
    does not show which rank it is; 'elsewhere': never seen, and known to live where this hangdoc does not look."""
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    """(name, value) of allow-listed variables only (RANK, WORLD_SIZE, MASTER_ADDR, …)."""
    process: Process | None = None
    """None: no such process was ever seen."""
    exit: ProcessExit | None = None
    journal: Journal | None = None
    first_store: Stack = ()
    """Where the rank made its first store or process group: the call that launched it."""
    log: LogTail | None = None
    rivals: tuple[int, ...] = ()
    """Pids of other processes, started beside this one, that carry the same rank."""


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Facts of one machine."""

    name: str
    listening: tuple[ListeningPort, ...] = ()
    connections: tuple[Connection, ...] = ()
    cpu_count: int = 0
    identity: str = ""
    """What tells the host from another one of the same name: boot id, pid namespace, network namespace. '' where it was
    not readable, and in snapshots of older versions."""
    launcher: Process | None = None
    """The host's own, in a snapshot of several hosts; of a single one it is in ``JobSnapshot.launcher``."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The whole job at one moment. Times in seconds."""

    taken: float
    """Unix time of the second look."""
    mode: str
    """'watch', 'attach', 'dump': files of flight recorders and nothing else, or 'log': what was printed or pasted."""
    command: tuple[str, ...] = ()
    run_id: str = ""
    hangdoc_version: str = ""
    stalled_for: float = 0.0
    stall_after: float = 0.0
    give_up_after: float = 600.0
    world_size: int | None = None
    ended: bool = False
    """The launcher is gone: this is a post-mortem."""
    exit_status: int | None = None
    """The launcher's, negative for a signal, once it ended."""
    launcher: Process | None = None
    """Of several hosts' launchers the oldest; ``launchers`` has all."""
    ranks: tuple[RankSnapshot, ...] = ()
    """Sorted by rank; ranks that were expected and never seen have ``process`` None."""
    hosts: tuple[HostSnapshot, ...] = ()
    log: LogTail | None = None
    """Lines with errors from the output that all ranks share, if it goes to a file; which rank wrote one is unknown."""
    written: tuple[Written, ...] = ()
    """The lines at the end of the job's output that its own statements wrote, where it goes to files."""
    tracebacks: tuple[Traceback, ...] = ()
    """The last ones in the job's output, where it goes to files."""
    store: RendezvousStore | None = None
    """The job's own store; None where it was not read."""
    nccl: NcclStatus | None = None
    """What NCCL's own service says; None where no rank offers it, or it gave no answer."""
    logged: Logged | None = None
    """What the job's logs say; None where none were read."""
    sources: tuple[SourceText, ...] = ()
    """Fragments: the functions on the stacks, of libraries as well, and what else of the program was asked for."""
    modules: tuple[Module, ...] = ()
    """The program's own files, whole, on a stack or not; none in snapshots of older versions, which have fragments
    alone. Those that stacks and histories name come first in the snapshot of one host."""
    library_roots: tuple[str, ...] = ()
    """Folders of library code as the ranks see them, for ``frames.is_library_file``."""
    unavailable: tuple[Unavailable, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    """(what, its version) as far as logs, dumps and processes say: 'NCCL', 'torch', 'Python', 'driver'; sorted. What
    has several versions in one job is there several times."""
    schema: str = SNAPSHOT_SCHEMA
    others: tuple[JobSnapshot, ...] = ()
    """Other jobs whose dumps lie in the same folder, the newest first; ``run_id`` says where each of them lies."""

    @property
    def launchers(self) -> tuple[tuple[str, Process], ...]:
        """(host, its launcher) of every host; the host is '' where a file of several hosts does not say it."""
        found = tuple((host.name, host.launcher) for host in self.hosts if host.launcher is not None)
        if found or self.launcher is None:
            return found
        return ((self.hosts[0].name if len(self.hosts) == 1 else "", self.launcher),)
