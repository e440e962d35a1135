"""What NCCL and its watchdog tell of a job's ranks, besides the probe: its own service, and dumps left in files."""

from __future__ import annotations

import os
from collections.abc import Collection

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import own_dumps, procfs, ras
from hangdoc.capture.read.process_looks import Look
from hangdoc.capture.request import CaptureRequest
from hangdoc.capture.safe.open_files import user_of
from hangdoc.model.journal import Journal
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.snapshot import Unavailable

RAS_SECONDS = ras.SECONDS


def ask_ras(request: CaptureRequest) -> NcclStatus | Unavailable | None:
    """What NCCL's RAS service says of the job; None where no rank offers it."""
    ranks = [
        ras.RasRank(target.rank, target.pid, dict(target.environment).get("NCCL_RAS_ADDR", ""))
        for target in request.targets
        if target.pid is not None and procfs.exists(target.pid)
    ]
    return ras.read_ras(
        ranks, world_size=max((target.world_size or 0 for target in request.targets), default=0) or None
    )


def own_dumps_of(
    request: CaptureRequest, silent: Collection[int], look: Look, taken: float
) -> tuple[dict[int, Journal], list[Unavailable]]:
    """By rank, what the dumps say that the recorders of ``silent`` ranks have left; a note for each that is no use.

    ``taken``: Unix time of ``look``, the last one.
    """
    known = request.journals.keys() | request.byes.keys()
    wanted = [target for target in request.targets if target.rank in silent and target.rank not in known]
    ranks = [found for target in wanted if (found := _dumping(target, look, watched=request.mode == "watch"))]
    # A job that is over has not gone on since; of one that is only looked at, nobody knows since when it stands.
    since = 0.0 if request.ended else taken - request.stalled_for if request.stalled_for else None
    return own_dumps.read_own_dumps(ranks, quiet_since=since)


def _dumping(target: RankTarget, look: Look, *, watched: bool) -> own_dumps.DumpingRank | None:
    """The rank with what says where its dump is, and whether it is its own; None where that is not known."""
    alive = target.pid is not None and procfs.exists(target.pid)
    if not alive and not watched:
        return None
    # A rank that has ended had the environment of the watched command, and was started after this process.
    witness = target.pid if alive and target.pid is not None else os.getpid()
    entry, user = procfs.stat(witness), user_of(witness)
    if entry is None or user is None:
        return None
    state = look.states.get(witness) if alive else None
    return own_dumps.DumpingRank(
        rank=target.rank,
        pid=witness if alive else None,
        started=procfs.start_time(entry),
        user=user,
        variables=own_dumps.dump_variables(witness),
        threads=frozenset(thread.python_id for thread in (state.threads if state else ()) if thread.python_id),
        world_size=target.world_size,
    )
