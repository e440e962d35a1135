"""Processes, threads and stacks, as seen from outside at one moment."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from hangdoc.model.branches import BranchCounts, Caught, Taken
from hangdoc.model.ran import RanCode


@dataclass(frozen=True, slots=True)
class Local:
    """One local variable of a frame; ``value`` is a masked, plain representation ('5', 'True', "'…'")."""

    name: str
    value: str
    argument: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python (or, where asked for, native) frame. ``file`` is the path as the job saw it."""

    file: str
    line: int
    function: str
    locals: tuple[Local, ...] = ()


Stack = tuple[Frame, ...]
"""Frames innermost first."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What a blocking system call works on, or a lock file.

    ``target`` is that of the descriptor's link ('pipe:[77]', '/data/lock'), for TCP 'socket:tcp 10.0.0.1:5 to
    10.0.0.2:6 (ESTABLISHED)', for AF_UNIX 'socket:unix 77 to 78'; the path where the call takes one; 'process 4711' for
    a wait.
    """

    fd: int
    target: str
    peers: tuple[int, ...] = ()
    """Pids, on the same host, that hold the other end (a pipe's reader or writer, a lock's holder), where they were
    found."""
    operation: str = ""
    """The system call: 'read', 'openat', 'flock', 'connect', 'wait4' (``fd`` -1, the child as peer)."""
    changed: float = 0.0
    """Unix time of a lock file's last change; 0 where it was not asked for."""

    @property
    def is_locking(self) -> bool:
        """True if the call waits for a lock on the file."""
        return self.operation in ("flock", "fcntl")


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a process at one look.

    ``state`` is the letter of /proc/PID/task/TID/stat; ``syscall`` the raw first words of
    /proc/PID/task/TID/syscall ('running', '202 0x7f… …'); ``cpu`` is user + system time in seconds.
    ``active``, ``owns_gil`` and ``frames`` come from py-spy and are None/empty where it saw nothing.
    """

    tid: int
    name: str
    state: str
    wchan: str | None = None
    syscall: str | None = None
    cpu: float = 0.0
    voluntary_switches: int = 0
    wakes_in: float | None = None
    """Seconds until the timed wait it sits in (sleep, futex or poll with a timeout) ends at the latest."""
    python_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    frames: Stack = ()
    native_frames: Stack = ()
    """C and C++ frames below the innermost Python frame, innermost first, where they were asked for."""
    blocking_files: tuple[OpenFile, ...] = ()
    """What its system call works on, of a Python thread other than the main thread (see ``Process.blocking_files``)."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One look at a process. ``at`` is Unix time, ``cpu`` in seconds, I/O in bytes (None: not readable).

    I/O counts what passed through read and write calls, whatever the file (rchar and wchar of /proc/PID/io).
    """

    at: float
    state: str
    tracer_pid: int = 0
    cpu: float = 0.0
    read_bytes: int | None = None
    write_bytes: int | None = None
    threads: tuple[Thread, ...] = ()

    @property
    def main(self) -> Thread | None:
        """The main thread: the one whose tid is the pid (always first)."""
        return self.threads[0] if self.threads else None


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """One process of the whole job: two hosts may each have a process with the same pid."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process and up to two looks at it, about a second apart."""

    pid: int
    ppid: int
    role: str
    """'rank', 'launcher', 'dataloader-worker', 'compiler' or 'child'."""
    comm: str = ""
    argv: tuple[str, ...] = ()
    started: float = 0.0
    looks: tuple[ProcessState, ...] = ()
    blocking_files: tuple[OpenFile, ...] = ()
    locked_files: tuple[str, ...] = ()
    """Files on which it holds a lock (flock or fcntl)."""
    named_locks: tuple[OpenFile, ...] = ()
    """Files that are there and that locals of its main thread name as locks, with those that hold a lock on them."""
    cwd: str = ""
    """Its working directory; '' where it could not be read."""
    environment: tuple[tuple[str, str], ...] = ()
    """Of a child: the variables by which torch's env:// finds a job, as it was started with them."""
    children: tuple[Process, ...] = ()
    code: tuple[RanCode, ...] = ()
    """What has run of the program, where the interpreter's counters could be read or the probe records it."""
    branches: tuple[BranchCounts, ...] = ()
    """How its tests came out, where the probe records that (CPython 3.12 to 3.14): those decided last among them."""
    taken: tuple[Taken, ...] = ()
    """In the order in which they came out in the main thread, the newest last. Of tests that come often, older values
    are left out (``BranchCounts.since_ns``)."""
    caught: tuple[Caught, ...] = ()
    """The newest last, of the same tests."""

    @property
    def last(self) -> ProcessState | None:
        """The latest look."""
        return self.looks[-1] if self.looks else None


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: its type's name, its own text, and where it was raised, innermost first."""

    exception: str
    message: str = ""
    stack: Stack = ()
    direct: bool = True
    """The next one was raised from it (``raise … from``); False: while it was handled."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended. ``status`` and ``signal`` are None where they are not known."""

    at: float
    status: int | None = None
    signal: int | None = None
    oom_kills: int | None = None
    """OOM kills in the process's control group during the run (None: not readable)."""
    exception: str | None = None
    """Type name of the uncaught exception, where the probe saw one."""
    stack: Stack = ()
    """Where the exception was raised, innermost first. Without one: where the thread was whose signal ended the
    process, or the main thread if that one ran no Python; () where nothing has seen it."""
    message: str = ""
    """The exception's own text."""
    raised_from: tuple[Raised, ...] = ()
    """What it was raised from, or while handling: the nearest first."""
    leaving: bool = False
    """The program had ended and Python was shutting down, as the probe's note says."""
    lived_at: float | None = None
    """Nobody saw the end: it came after this time, seconds since the epoch, and before ``at``. None: ``at`` is when."""

    @property
    def raised(self) -> tuple[Raised, ...]:
        """The uncaught exception and what it was raised from, or while handling; () where none was seen."""
        return (Raised(self.exception, self.message, self.stack), *self.raised_from) if self.exception else ()

    @property
    def earliest(self) -> float:
        """When it can have ended at the earliest, seconds since the epoch."""
        return self.at if self.lived_at is None else self.lived_at

    @property
    def fatal_signal(self) -> int | None:
        """The signal that ended it; None where an uncaught exception had, and a signal (the launcher's, or an abort of
        native code in the shutdown) only followed."""
        return None if self.exception and not self.for_memory else self.signal

    @property
    def for_memory(self) -> bool:
        """True if the kernel's out-of-memory killer may have ended it: that sends SIGKILL, and no other signal."""
        return self.signal == signal.SIGKILL and bool(self.oom_kills)
