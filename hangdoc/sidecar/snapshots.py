"""From what the sidecar knows to snapshots: of a stalled job, and of one that ended by itself.

Imported when there is something to look at, so that a healthy job's watcher stays small.
"""

from __future__ import annotations

import time
from dataclasses import replace

from hangdoc.capture.find.elsewhere import whole_job
from hangdoc.capture.host import capture_job
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_duration
from hangdoc.sidecar.command import Run
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.ranks import KeptJournal, Roster

_LATE_EXITS_SECONDS = 1.0


def stalled_job(run: Run, options: WatchOptions, roster: Roster, *, quiet: float, patience: float) -> JobSnapshot:
    """Look at all ranks, living and dead. ``quiet``: seconds without progress."""
    request = _request(run, options, roster)
    snapshot = capture_job(replace(request, stalled_for=quiet, stall_after=patience))
    return _with_the_dead(snapshot, roster)


def ended_job(run: Run, options: WatchOptions, roster: Roster, status: int | None) -> JobSnapshot | None:
    """The job after its launcher ended with ``status`` (negative: a signal; None: it lives, and these are the ranks of
    an earlier round); None if nothing failed.

    With status 0 nothing has, whatever became of its children: multiprocessing ends daemons with SIGTERM at a normal
    exit (Python 3.10 to 3.14).
    """
    if status == 0:
        return None
    roster.wait_for_exits(_LATE_EXITS_SECONDS)
    if not roster.members() or not (status or any(_failed(ended) for ended in roster.exits().values())):
        return None
    request = _request(run, options, roster)
    kept = roster.kept_journals()
    request = replace(
        request,
        ended=True,
        exit_status=status,
        options=replace(request.options, gap=0.0),
        journals={rank: each.journal for rank, each in kept.items()},
        notes=tuple(_age_of(rank, each, request.exits.get(rank)) for rank, each in kept.items()),
    )
    # The processes took their ports with them: no host is better than one that seems to listen on nothing.
    snapshot = replace(capture_job(request), launcher=roster.launcher, hosts=())
    return _with_the_dead(snapshot, roster)


def _age_of(rank: int, kept: KeptJournal, ended: ProcessExit | None) -> Unavailable:
    """That a rank's calls are known only up to a moment before its end."""
    seconds = max(0.0, (ended.at if ended is not None else time.time()) - kept.at)
    why = f"it left none as it ended; its calls are shown as they were {name_duration(seconds)} before"
    return Unavailable("journal", why, rank=rank)


def _request(run: Run, options: WatchOptions, roster: Roster) -> CaptureRequest:
    dead = frozenset(m.process.pid for m in roster.members().values() if roster.has_ended(m.process.pid))
    job = whole_job(roster.targets(), dead, run.launcher)
    return CaptureRequest(
        targets=job.targets,
        launcher_pid=run.launcher,
        mode="watch",
        command=run.command,
        run_id=run.run_id,
        give_up_after=options.give_up_after,
        exits={**job.exits, **roster.exits()},
        byes=roster.byes(),
        logs=roster.log_files(),
        store=job.store,
        options=CaptureOptions(no_source=not options.read_sources),
    )


def _with_the_dead(snapshot: JobSnapshot, roster: Roster) -> JobSnapshot:
    """Ranks whose processes could not be looked at any more get what was known of them."""
    members = roster.members()

    def completed(rank: RankSnapshot) -> RankSnapshot:
        if rank.rank not in members or (rank.process is not None and rank.process.looks):
            return rank
        return replace(rank, process=members[rank.rank].process)

    return replace(snapshot, ranks=tuple(completed(rank) for rank in snapshot.ranks))


def _failed(ended: ProcessExit) -> bool:
    return ended.signal is not None or bool(ended.status)
