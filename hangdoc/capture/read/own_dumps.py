"""The dump that a rank's own flight recorder has left in a file: when a call of its timed out, or when it was asked.

PyTorch's watchdog of NCCL writes ``<prefix><rank>``, a pickle (DebugInfoWriter::getWriter, torch 2.15 and before); so
do HCCL's (torch_npu) and torchcomms, each with a prefix of its own. A file of that name may be of an earlier run, or of
another job with the same prefix: it must belong to the rank's user, be younger than the rank, hold a group of the job's
size and, where the rank's threads are known, calls of one of them. And it must show the calls of now: a job may have
gone on since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hangdoc.capture.read.dump_pipes import PIPES
from hangdoc.capture.read.flight_recorder import MOST_BYTES, StackTable, parse
from hangdoc.capture.safe.open_files import User, as_user, regular_file_below
from hangdoc.capture.safe.pickles import PROBE_LIMITS, PickleWorker
from hangdoc.capture.safe.text import clean, read_bytes
from hangdoc.model.journal import Call, Journal, PointToPoint
from hangdoc.model.snapshot import Unavailable

_PREFIXES = (
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    ("TORCH_HCCL_DEBUG_INFO_TEMP_FILE",),
    ("TORCHCOMM_FR_DUMP_TEMP_FILE",),
)
"""By writer, in the order in which torch 2.13 asks for them; older ones know the second only."""
_DEFAULTS = ("/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")  # noqa: S108 - torch before 2.8, torch_npu
_NAMES = frozenset({*(name for names in _PREFIXES for name in names), *PIPES, "XDG_CACHE_HOME", "HOME"})
_CLOCK_SLACK = 1.0
"""Seconds: start times are rounded down to ticks."""
_ASK = "remove it, or let the next run write elsewhere (TORCH_FR_DUMP_TEMP_FILE)"


@dataclass(frozen=True, slots=True)
class DumpingRank:
    """A rank that may have left a dump. ``pid`` None: it has ended, and paths are those of this process.

    ``started``: Unix time before which no file is its own; ``threads``: pthread ids of its threads, as far as they are
    known; ``variables``: those of ``dump_variables``.
    """

    rank: int
    pid: int | None
    started: float
    user: User
    variables: Mapping[str, str]
    threads: frozenset[int] = frozenset()
    world_size: int | None = None


def dump_variables(pid: int) -> dict[str, str]:
    """The variables that say where the process's dumps go, as it was started with."""
    data = read_bytes(f"/proc/{pid}/environ", 1 << 20) or b""
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    # Surrogates, and not escapes, so that the name stays the file's.
    return {name: os.fsdecode(value) for key, _, value in pairs if (name := os.fsdecode(key)) in _NAMES and value}


def read_own_dumps(
    ranks: Sequence[DumpingRank], *, quiet_since: float | None = None
) -> tuple[dict[int, Journal], list[Unavailable]]:
    """By rank, what their dumps say of now; a note for each dump that cannot be used.

    ``quiet_since``: Unix time since when the job is known not to move. A dump of an earlier time counts only if a
    call had timed out in it.
    """
    journals: dict[int, Journal] = {}
    notes: list[Unavailable] = []
    with PickleWorker(PROBE_LIMITS) as worker:
        for rank in ranks:
            found = _read_one(rank, worker, quiet_since)
            if isinstance(found, Unavailable):
                notes.append(found)
            elif found is not None:
                journals[rank.rank] = found
    return journals, notes


def _read_one(rank: DumpingRank, worker: PickleWorker, quiet_since: float | None) -> Journal | Unavailable | None:
    named = [next((rank.variables[name] for name in names if rank.variables.get(name)), "") for names in _PREFIXES]
    paths = [f"{prefix}{rank.rank}" for prefix in named if prefix]
    for path in paths or _default_paths(rank):
        try:
            data, written = as_user(rank.user, partial(_read, rank, path))
            if data is None:
                continue
            journal = _journal(worker.as_json(data), written)
            _require_own(journal, rank)
            _require_now(journal, written, quiet_since)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            if not paths:
                continue  # what lies at the usual place may be anybody's
            why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            return Unavailable("journal", clean(f"its dump {path}: {why}", 400), _ASK, rank.rank)
        return journal
    return None


def _default_paths(rank: DumpingRank) -> list[str]:
    home = rank.variables.get("HOME", "/tmp")  # noqa: S108 - torch's own default
    cache = rank.variables.get("XDG_CACHE_HOME", f"{home}/.cache")
    return [f"{prefix}{rank.rank}" for prefix in (f"{cache}/torch/comm_lib_trace_rank_", *_DEFAULTS)]


def _read(rank: DumpingRank, path: str) -> tuple[bytes | None, float]:
    """(the file's contents, when it was written); None for the contents of a file that is older than the rank."""
    root, start = (f"/proc/{rank.pid}/root", f"/proc/{rank.pid}/cwd") if rank.pid is not None else ("/", os.curdir)
    try:
        descriptor = regular_file_below(root, path, start=start)
    except NotADirectoryError:
        raise FileNotFoundError(path) from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_mtime < rank.started - _CLOCK_SLACK:
            return None, 0.0
        if status.st_uid != rank.user.uid:
            raise ValueError(f"it belongs to user {status.st_uid}")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return data, status.st_mtime


def _journal(dump: dict[str, object], written: float) -> Journal:
    table = StackTable.new()
    recorded = parse(dump, table)
    if isinstance(recorded, Unavailable):
        raise ValueError(recorded.why)  # noqa: TRY004 - the file is at fault, not its type
    return recorded.as_journal(tuple(table.stacks), written)


def why_not_now(journal: Journal, rank: DumpingRank) -> str:
    """Why a dump that was read elsewhere does not show what that rank does now; '' if it does."""
    try:
        _require_own(journal, rank)
        _require_now(journal, journal.written_ns / 1e9, None)
    except ValueError as error:
        return str(error)
    return ""


def _require_own(journal: Journal, rank: DumpingRank) -> None:
    """Raise ``ValueError`` if another process has written the dump."""
    issued: list[Call | PointToPoint] = [*journal.calls, *journal.point_to_points]
    newest = max((each.created_ns for each in issued), default=0) / 1e9
    if issued and newest < rank.started - _CLOCK_SLACK:
        raise ValueError("its calls are of an earlier run")
    sizes = {len(group.members) for group in journal.groups if group.description == "default_pg" and group.members}
    if rank.world_size and sizes and rank.world_size not in sizes:
        raise ValueError(f"it is of a job of {min(sizes)} ranks")
    threads = {each.thread_id for each in issued} - {0}
    if threads and rank.threads and not threads & rank.threads:
        raise ValueError("another process has written it")


def _require_now(journal: Journal, written: float, quiet_since: float | None) -> None:
    """Raise ``ValueError`` if the rank may have gone on since the dump was written."""
    if quiet_since is not None and written >= quiet_since - _CLOCK_SLACK:
        return
    waiting = [call for call in journal.calls if not call.completed and call.timeout_ms and call.created_ns]
    if not any(written - call.created_ns / 1e9 >= call.timeout_ms / 1e3 for call in waiting):
        when = time.strftime("%H:%M:%S", time.gmtime(written))
        raise ValueError(f"it was written at {when} UTC, and the job may have gone on since")
