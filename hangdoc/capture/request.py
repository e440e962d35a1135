"""What a capture is asked for, and what its caller knows already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.logs import LogFile
from hangdoc.capture.read.probe_client import ProbeBye, ProbeClient
from hangdoc.model.journal import Journal
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import Unavailable
from hangdoc.model.store import RendezvousStore


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """``gap``: seconds between the two looks."""

    gap: float = 1.0
    keep_strings: bool = False
    no_source: bool = False
    inject: bool = False
    """Fetch the journals of ranks without a probe through gdb, after the second look (``injection``)."""
    ask_dumps: bool = False
    """Have the recorders of ranks without a probe write their dumps, where the user has set up pipes for that."""
    native: bool = False
    """Ask pystack for native frames where nothing else shows what a rank waits for (``native``)."""
    paths: tuple[str, ...] = ()
    """What `hangdoc collect` reads beside the job: files, and folders of dumps and logs."""
    seen: tuple[str, ...] = ()
    """The marks (``collect.mark_of``) of paths that it has read already, on another host."""
    live: bool = True
    """False: only ``paths`` are read."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What to capture on one host, and what the caller knows already. Pids are that host's.

    ``clients`` (by pid) are connections to probes, which only the capture uses meanwhile; other probes are asked over
    ``RankTarget.socket``. ``exits``, ``journals`` (the last good ones), ``byes`` and ``logs``
    are by rank. Times in seconds.
    """

    targets: Sequence[RankTarget]
    launcher_pid: int | None = None
    mode: str = "attach"
    command: tuple[str, ...] = ()
    run_id: str = ""
    stalled_for: float = 0.0
    stall_after: float = 0.0
    give_up_after: float = 600.0
    ended: bool = False
    exit_status: int | None = None
    clients: Mapping[int, ProbeClient] = field(default_factory=dict)
    exits: Mapping[int, ProcessExit] = field(default_factory=dict)
    journals: Mapping[int, Journal] = field(default_factory=dict)
    byes: Mapping[int, ProbeBye] = field(default_factory=dict)
    logs: Mapping[int, tuple[LogFile, ...]] = field(default_factory=dict)
    store: RendezvousStore | None = None
    notes: tuple[Unavailable, ...] = ()
    """What the caller could not find out."""
    options: CaptureOptions = CaptureOptions()
