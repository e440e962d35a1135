"""Find the job of a pid and capture it, or say clearly why that is impossible."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping

from hangdoc.capture.find import ended_ranks, job_key
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.joined import living_elsewhere, read_store
from hangdoc.capture.find.process_table import Entry, ProcessTable, read_table
from hangdoc.capture.find.promised import with_strangers
from hangdoc.capture.find.unlabelled import lone_process
from hangdoc.capture.host import capture_job
from hangdoc.capture.other_hosts import with_way_to_the_others
from hangdoc.capture.read import procfs
from hangdoc.capture.read.stacks import PERMISSION
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.capture.safe.advice import ourselves
from hangdoc.capture.safe.text import read_text
from hangdoc.errors import CannotLook
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.summary import JobSummary
from hangdoc.model.wording import harmless

_PULSE_SECONDS = 0.3
"""Between two readings of the ranks' counters: a rank that trains switches 90 to 145 times a second (measured), one
that hangs never."""
_MOVING_CPU = 0.02
"""Seconds of CPU time in that span above which a polling rank counts as moving: two ticks of the clock. Judgement."""
_LIST = "`hangdoc attach` without a pid lists the jobs seen here."


def list_jobs() -> list[JobSummary]:
    """The jobs that this machine shows, the oldest first; takes about half a second."""
    table = read_table()
    jobs = Jobs(table).all
    before = {pid: procfs.pulse(pid) for job in jobs for pid in job.pids}
    # A Ray worker's main thread looks for tasks a hundred times a second; the training is in another.
    polling = {pid for job in jobs if job.launcher == "ray" for pid in job.pids}
    time.sleep(_PULSE_SECONDS)
    moving = {pid for pid, pulse in before.items() if _moved(pulse, procfs.pulse(pid), polls=pid in polling)}
    return [_summary(table, job, moving) for job in jobs]


def _moved(before: procfs.Pulse | None, now: procfs.Pulse | None, *, polls: bool) -> bool:
    if before is None or now is None or not polls:
        return before != now
    return now.cpu - before.cpu > _MOVING_CPU


def attach_job(pid: int, options: CaptureOptions | None = None) -> JobSnapshot:
    """Look at the job that ``pid`` belongs to, twice, about a second apart.

    Raises ``CannotLook`` where there is no such process, no job around it, or no permission.
    """
    return with_way_to_the_others(capture_found(*find_job(pid), options), pid)


def attach_by_key(wanted: Mapping[str, str], options: CaptureOptions | None = None) -> JobSnapshot:
    """As ``attach_job``, of the job of this host that ``wanted`` fits (see ``job_key``); {}: the only one there is."""
    table = read_table()
    return capture_found(table, job_key.choose(Jobs(table).all, wanted), options)


def capture_found(table: ProcessTable, job: Job, options: CaptureOptions | None = None) -> JobSnapshot:
    """The snapshot of ``job`` as this host shows it. Raises ``CannotLook`` where no rank lets itself be looked into."""
    reading = read_store(table, job)
    targets, exits = ended_ranks.how_they_ended(table, reading.job, reading.store.silent if reading.store else ())
    targets = with_strangers(targets, () if job.root is None else (job.root,), table, exits)
    snapshot = capture_job(
        CaptureRequest(
            targets=living_elsewhere(targets, reading.store, exits),
            exits=exits,
            launcher_pid=job.root,
            mode="attach",
            command=_command(table, job),
            store=reading.store,
            notes=(*job.notes, *reading.notes),
            options=options or CaptureOptions(),
        )
    )
    if job.pids and not any(_tells(rank) for rank in snapshot.ranks if rank.process is not None):
        raise _blind(table[job.pids[0]], snapshot)
    return ended_ranks.with_believed_ranks(snapshot)


def variables_elsewhere(job: Job) -> dict[str, str]:
    """By which variables other hosts know the job. Raises ``CannotLook`` where it has none of them."""
    variables = job_key.variables_of(job)
    if variables.keys() <= {"WORLD_SIZE"}:
        raise CannotLook(
            "nothing in the environment of the job's ranks tells it from other jobs on other hosts",
            "Leave the pid out if only this job runs on the hosts, or run hangdoc capture PID on each of them.",
        )
    return variables


def find_job(pid: int) -> tuple[ProcessTable, Job]:
    """(the table of processes, the job around ``pid``). Raises ``CannotLook``."""
    # One branch for each reason to refuse a pid, in the order in which they explain most.
    table = read_table()
    pid = _process_of(pid, table)
    entry = table[pid]
    jobs = Jobs(table, near=pid)
    job = jobs.of(pid) or (jobs.served_by(pid) if entry.comm == "srun" else None)
    if job is not None:
        return table, job
    if pid == os.getpid():
        raise CannotLook(f"{_name(entry)} is hangdoc itself", _LIST)
    if _is_kernel_thread(entry, table):
        raise CannotLook(f"{_name(entry)} is a thread of the kernel, not of a job", _LIST)
    if not entry.alive:
        raise CannotLook(f"{_name(entry)} has ended (a zombie), and no job around it lives", _LIST)
    below = jobs.below(pid)
    if pid == 1 or pid in table.ancestors(os.getpid()):
        what = "the first process of this machine" if pid == 1 else "above hangdoc itself"
        raise CannotLook(f"{_name(entry)} is {what}, not a job", _choice(below) or _LIST)
    if len(below) == 1:
        return table, below[0]
    if below:
        raise CannotLook(f"{len(below)} jobs run below {_name(entry)}", _choice(below))
    if entry.environment is None:
        raise _forbidden(entry)
    return table, lone_process(table, pid) or _refuse(table, entry)


def _tells(rank: RankSnapshot) -> bool:
    """Whether the process showed what it does: a stack, a journal, or a state that explains itself."""
    state = rank.process.last if rank.process is not None else None
    if rank.journal is not None or rank.exit is not None or state is None or state.state not in "SRI":
        return True
    return any(thread.frames for thread in state.threads)


def _blind(entry: Entry, snapshot: JobSnapshot) -> CannotLook:
    """No rank could be looked into; why."""
    if entry.environment is None:
        return _forbidden(entry)
    failure = next((item for item in snapshot.unavailable if item.what == "stack"), None)
    if failure is None:
        return CannotLook("no rank of the job could be looked at", "Run hangdoc doctor: it shows what is in the way.")
    return CannotLook(f"no rank could be looked into, {_name(entry)} for one: {failure.why}", failure.remedy)


def _forbidden(entry: Entry) -> CannotLook:
    """The process may not be looked into."""
    own = os.geteuid()
    if own != entry.user:
        return CannotLook(
            f"{_name(entry)} belongs to {_user(entry.user)} and may not be read by {_user(own)}",
            f"Run hangdoc as that user or as root: sudo {ourselves()} attach {entry.pid}",
        )
    return CannotLook(f"{_name(entry)} may not be read, though it belongs to {_user(own)}", PERMISSION)


def _process_of(pid: int, table: ProcessTable) -> int:
    """``pid`` itself, or its process where it is the id of a thread."""
    if pid in table:
        return pid
    for line in (read_text(f"/proc/{pid}/status", 16384) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Tgid" and value.strip().isdigit() and int(value) in table:
            return int(value)
    raise CannotLook(
        f"there is no process {pid}",
        "It has ended, or its number is of another pid namespace: inside a container only the container's own count."
        if _in_container()
        else f"It has ended. {_LIST}",
    )


def _in_container() -> bool:
    """Whether we are likely in a pid namespace of our own: its first process is then no init."""
    first = procfs.stat(1)
    return os.path.exists("/.dockerenv") or first is None or first.comm not in ("systemd", "init")  # noqa: PTH110


def _is_kernel_thread(entry: Entry, table: ProcessTable) -> bool:
    if entry.pid == 2 or entry.ppid == 2:
        return table[2].comm == "kthreadd" if 2 in table else True
    return False


def _refuse(table: ProcessTable, entry: Entry) -> Job:
    if not table.is_python(entry.pid):
        raise CannotLook(f"{_name(entry)} is not Python, and no job runs below it", _LIST)
    if table.has_torch(entry.pid) is None:
        raise CannotLook(
            f"the memory map of {_name(entry)} may not be read",
            f"Run hangdoc as root: sudo {ourselves()} attach {entry.pid}; in a container with --cap-add=SYS_PTRACE.",
        )
    raise CannotLook(f"{_name(entry)} is Python without torch, and no job runs around it", _LIST)


def _choice(jobs: list[Job]) -> str:
    if not jobs:
        return ""
    pids = ", ".join(str(job.root or min(job.pids, default=0)) for job in jobs[:8])
    return f"Choose one: hangdoc attach PID, with {pids}." if len(jobs) > 1 else f"Did you mean the job of {pids}?"


def _name(entry: Entry) -> str:
    return f"process {entry.pid} ({harmless(entry.comm)})" if entry.comm else f"process {entry.pid}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _summary(table: ProcessTable, job: Job, moving: set[int]) -> JobSummary:
    anchor = job.pids[0] if job.root is None else job.root
    oldest = min(table[pid].started for pid in (anchor, *job.pids))
    return JobSummary(
        pid=anchor,
        launcher=job.launcher,
        command=_command(table, job),
        user=_user(table[anchor].user),
        since=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + oldest,
        ranks=tuple(target.rank for target in job.targets if target.pid is not None),
        missing=tuple(target.rank for target in job.targets if target.pid is None),
        moving=len(moving & set(job.pids)),
        readable=job.root is None or table[job.root].environment is not None,
    )


def _command(table: ProcessTable, job: Job) -> tuple[str, ...]:
    """The launcher's command line; the first rank's if the launcher is a daemon of Slurm's."""
    pid = job.root if job.root is not None and table[job.root].comm != "slurmstepd" else job.pids[0]
    return table[pid].argv
