"""What NCCL and its watchdog tell of a job's ranks, besides the probe: its own service, and dumps left in files."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import own_dumps, procfs, ras
from hangdoc.capture.read.dump_pipes import ask_for_dump
from hangdoc.capture.read.process_looks import Look
from hangdoc.capture.request import CaptureRequest
from hangdoc.capture.safe.open_files import user_of
from hangdoc.model.journal import Journal
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.snapshot import Unavailable

RAS_SECONDS = ras.SECONDS
_SET_UP = "set TORCH_NCCL_DEBUG_INFO_PIPE_FILE for the next run"
_WRITING_SECONDS = 6.0
"""PyTorch looks for what came through the pipe once a second (TORCH_NCCL_COORD_CHECK_MILSEC, torch 2.13), and then
looks up the lines of 2,000 stacks."""
_POLL_SECONDS = 0.5


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
    asked, refused = _ask(ranks) if request.options.ask_dumps else ([], [])
    journals, notes = _await_dumps(asked)
    others = [rank for rank in ranks if rank not in asked]
    more, further = own_dumps.read_own_dumps(others, quiet_since=since)
    return {**journals, **more}, [*refused, *notes, *further]


def _ask(ranks: Sequence[own_dumps.DumpingRank]) -> tuple[list[own_dumps.DumpingRank], list[Unavailable]]:
    """(the ranks that were asked for a new dump, why the others could not be)."""
    asked, refused = [], []
    for rank in ranks:
        why = ask_for_dump(rank.pid, rank.rank, rank.variables) if rank.pid is not None else "it has ended"
        if why:
            refused.append(Unavailable("journal", f"no new dump: {why}", _SET_UP, rank.rank))
        else:
            asked.append(rank)
    return asked, refused


def _await_dumps(
    asked: Sequence[own_dumps.DumpingRank],
) -> tuple[dict[int, Journal], list[Unavailable]]:
    """The dumps that the ranks were asked for just now, as soon as they are there."""
    journals: dict[int, Journal] = {}
    notes: list[Unavailable] = []
    since = time.time()
    until = time.monotonic() + _WRITING_SECONDS
    while asked:
        found, notes = own_dumps.read_own_dumps(asked, quiet_since=since)
        journals |= found
        asked = [rank for rank in asked if rank.rank not in found]
        if not asked or time.monotonic() > until:
            break
        time.sleep(_POLL_SECONDS)
    noted = {note.rank for note in notes}
    late = [Unavailable("journal", "it wrote no dump in time", "", r.rank) for r in asked if r.rank not in noted]
    return journals, [*notes, *late]


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
