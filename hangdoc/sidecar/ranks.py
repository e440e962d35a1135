"""Every process that was a rank of the job: living, ended and how, or expected and never seen.

Kept while they live, so that a dead rank, and a job that ended by itself, can still be diagnosed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

from hangdoc.capture.find.promised import latest_restarts
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import logs, procfs
from hangdoc.capture.read.exits import ExitWatch
from hangdoc.capture.read.fault_stacks import read_fault
from hangdoc.capture.read.probe_client import ProbeBye, ProbeClient, ProbeCounters, read_bye, read_introduction
from hangdoc.model.journal import Journal
from hangdoc.model.launch import number
from hangdoc.model.process import Process, ProcessExit
from hangdoc.model.snapshot import JobSnapshot, Unavailable
from hangdoc.sidecar.command import Run

_HEARING_SECONDS = 1.5
"""An answer takes 0.05 s, and 0.5 s on a machine with ten times as much to do as it can (measured); one that its
launcher ends meanwhile closes the connection."""
_MOST_ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A rank and what must be read while it lives. ``log_files``: where its output goes, if to files."""

    target: RankTarget
    process: Process
    log_files: tuple[logs.LogFile, ...]


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """What a rank said at ``at``, seconds since the epoch."""

    journal: Journal
    at: float


@dataclass(frozen=True, slots=True)
class EndedRound:
    """The ranks that a launcher has started anew. ``roster``: as they were; None where none of them was seen.

    ``restart``: the number of the restart that followed, of ``most`` that the launcher may make (None: not known).
    """

    roster: Roster | None
    restart: int
    most: int | None


class Roster:
    """Not for several threads at once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watch = ExitWatch()
        self._watch.add(run.launcher)
        self._members: dict[int, Member] = {}
        self._absent: list[RankTarget] = []
        self._exits: dict[int, ProcessExit] = {}
        self._heard: dict[int, ProbeBye] = {}
        self._notes: dict[Path, ProbeCounters | None] = {}
        self._unseen_ends: dict[int, float | None] = {}
        """Pid → when it still lived, of ranks that had ended when they were found."""
        self._polled_at = time.time()
        self._journals: dict[int, KeptJournal] = {}
        """By pid: what ranks said in the stall that still lasts."""
        self._restarts: dict[int | None, int] = {}
        """The restart that the latest ranks of each agent belong to, by its own count."""
        self._ended_round: EndedRound | None = None
        self.launcher = _describe(run.launcher, "launcher")
        self.can_wait = _can_wait_for(run.launcher)
        """False if the launcher ended already, and before Linux 5.3."""

    def update(self, targets: Iterable[RankTarget]) -> None:
        """These are the ranks that live now, and those that are expected."""
        self._absent = []
        living: set[int] = set()
        targets = list(targets)
        noted = list(map(self._noted, targets))
        latest = latest_restarts(target for target in targets if target.pid is not None)
        counted = [count for agent, count in latest.items() if count > self._restarts.get(agent, 0)]
        self._restarts.update(latest)
        if counted:
            # One agent has counted a failure: the others have started their ranks anew as well.
            here = {target.pid for target in noted}
            before = copy(self)
            before._members = {pid: member for pid, member in self._members.items() if pid not in here}
            self._members = {pid: member for pid, member in self._members.items() if pid in here}
            self._ended_round = EndedRound(before if before._members else None, max(counted), _most_restarts(noted))
        for target in noted:
            living.add(target.pid or 0)
            if target.pid is None:
                self._absent.append(target)
            elif (known := self._members.get(target.pid)) is not None:
                self._members[target.pid] = replace(known, target=target)
            else:
                process = _describe(target.pid, "rank")
                if self._begins_anew(target, process.ppid):
                    self._members.clear()
                self._watch.add(target.pid)
                self._members[target.pid] = Member(target, process, logs.log_files(target.pid))
        # What a launcher started looks like a rank until it starts ranks of its own: srun's torchrun.
        for pid in {self._members[pid].process.ppid for pid in living & self._members.keys()} - living:
            self._members.pop(pid, None)

    def _begins_anew(self, target: RankTarget, parent: int) -> bool:
        """True if the rank belongs to a second job: all ranks of the first have ended, this number among them, or its
        launcher (``parent``) had told them another place or size of the job.

        Without that, they may have ended before this rank could join them. Example: a node of ranks 0 and 1 has ranks 2
        and 3 after another one has come; torchrun does not count that as a restart.
        """
        if not all(pid in self._exits for pid in self._members):
            return False
        return any(
            member.target.rank == target.rank
            or (member.process.ppid == parent and _round(member.target) != _round(target))
            for member in self._members.values()
        )

    def _noted(self, target: RankTarget) -> RankTarget:
        """``target``; if it is an absent rank that left a note of who it is and then ended, with its pid.

        For example, a script that imports torch, calls init_process_group and fails lives for two seconds.
        """
        if target.pid is not None:
            return target
        for path in sorted(self._run.socket_folder.glob("*.rank")):
            if path not in self._notes:
                self._notes[path] = read_introduction(path)
            who = self._notes[path]
            if who is None or (who.rank, who.restart) != (target.rank, target.restart):
                continue
            entry = procfs.stat(who.pid)
            if entry is not None and entry.state not in "ZX":
                continue  # a helper under its parent's rank, or the number is another process's by now
            if who.pid not in self._members:
                self._unseen_ends[who.pid] = _modified(path)
                if entry is None:
                    self._note_ends({who.pid: ProcessExit(at=time.time())})
            return replace(target, pid=who.pid, identity="probe", local_rank=who.local_rank)
        return target

    def take_ended_round(self) -> EndedRound | None:
        """The ranks that the launcher has replaced since the last call, once."""
        found, self._ended_round = self._ended_round, None
        return found

    def keep_journals(self, snapshot: JobSnapshot) -> None:
        """Remember what the ranks said: one that native code ends takes its own record along."""
        pids = {rank: member.process.pid for rank, member in self.members().items()}
        said = {pids[r.rank]: r.journal for r in snapshot.ranks if r.rank in pids and r.journal is not None}
        self._journals.update({pid: KeptJournal(journal, snapshot.taken) for pid, journal in said.items()})

    def forget_journals(self) -> None:
        """The job moves: what its ranks said is out of date."""
        self._journals.clear()

    def kept_journals(self) -> dict[int, KeptJournal]:
        """By rank, what is remembered of those that have ended without a word."""
        members, left = self.members(), self.byes()
        found = {rank: self._journals.get(member.process.pid) for rank, member in members.items() if rank not in left}
        return {rank: kept for rank, kept in found.items() if kept is not None}

    def wait(self, seconds: float) -> bool:
        """Sleep until a rank or the launcher ends, at most ``seconds``; whether one did."""
        self._watch.wait(seconds)
        ended = self._watch.poll()
        self._note_ends(ended)
        return bool(ended)

    def _note_ends(self, ended: dict[int, ProcessExit]) -> None:
        """A rank lived when its end was last asked for; on a busy machine that may have been a while ago."""
        for pid, end in ended.items():
            self._exits[pid] = replace(end, lived_at=self._unseen_ends.get(pid, self._polled_at))
        self._polled_at = time.time()

    def hear_survivors(self) -> None:
        """After a rank failed: its peers fail next, or their launcher ends them before they can leave a note."""
        members = [m for m in self.members().values() if m.process.pid not in self._exits]
        # A rank may have begun to answer since the last search for sockets.
        paths = {m.process.pid: m.target.socket or self._note_of(m, "sock") for m in members}
        living = [(pid, path) for pid, path in paths.items() if path.exists()]
        if not living or not any(ended.status != 0 for ended in self._exits.values()):
            return
        with ThreadPoolExecutor(min(len(living), _MOST_ASKED_AT_ONCE), thread_name_prefix="survivors") as pool:
            self._heard.update(
                {pid: bye for pid, bye in pool.map(_hear, *zip(*living, strict=True)) if bye is not None}
            )

    def wait_for_exits(self, seconds: float) -> None:
        """Wait until all ranks ended, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while any(member.process.pid not in self._exits for member in self.members().values()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.wait(left)

    def has_ended(self, pid: int) -> bool:
        """True if this rank, or the launcher, is known to have ended."""
        return pid in self._exits

    def members(self) -> dict[int, Member]:
        """One process per rank, by rank; the living before the dead, the young first."""
        ended_first = sorted(
            self._members.values(),
            key=lambda member: (member.process.pid not in self._exits, member.process.started),
        )
        by_rank = {member.target.rank: member for member in ended_first}
        return {rank: by_rank[rank] for rank in sorted(by_rank)}

    def targets(self) -> list[RankTarget]:
        """All ranks of the latest restart: living, ended and expected."""
        members = self.members()
        absent = [target for target in self._absent if target.rank not in members]
        return [*(member.target for member in members.values()), *absent]

    def exits(self) -> dict[int, ProcessExit]:
        """How ranks ended, by rank, with the last words of those that had some."""
        found = {}
        for rank, member in self.members().items():
            ended = self._exits.get(member.process.pid)
            if ended is None:
                continue
            bye = self._last_words(member, history=False)
            if bye is not None:
                ended = replace(bye.of(ended), at=min(ended.at, bye.at), leaving=True)
            elif ended.signal is not None:
                ended = replace(ended, stack=read_fault(self._note_of(member, "fault"), ended.signal))
            found[rank] = ended
        return found

    def byes(self) -> dict[int, ProbeBye]:
        """What ranks left as they exited, or said when the first of them failed, by rank."""
        members = self.members()
        if not members:
            return {}
        with ThreadPoolExecutor(min(len(members), _MOST_ASKED_AT_ONCE), thread_name_prefix="byes") as pool:
            left = dict(zip(members, pool.map(self._last_words, members.values()), strict=True))
        read = {rank: left[rank] or self._heard.get(member.process.pid) for rank, member in members.items()}
        return {rank: bye for rank, bye in read.items() if bye is not None}

    def log_files(self) -> dict[int, tuple[logs.LogFile, ...]]:
        """Where ranks write to, by rank."""
        return {rank: member.log_files for rank, member in self.members().items()}

    def close(self) -> None:
        """Forget all processes."""
        self._watch.close()

    def _last_words(self, member: Member, *, history: bool = True) -> ProbeBye | None:
        return read_bye(self._note_of(member, "bye"), history=history)

    def _note_of(self, member: Member, kind: str) -> Path:
        return self._run.socket_folder / f"{member.process.pid}.{kind}"


def _round(target: RankTarget) -> tuple[str | None, ...]:
    """What all ranks that torchrun starts at once on a host have in common."""
    environment = dict(target.environment)
    return tuple(map(environment.get, ("WORLD_SIZE", "GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")))


def _most_restarts(targets: Iterable[RankTarget]) -> int | None:
    found = (number(dict(target.environment).get("TORCHELASTIC_MAX_RESTARTS")) for target in targets)
    return next((most for most in found if most is not None), None)


def _describe(pid: int, role: str) -> Process:
    entry = procfs.stat(pid)
    if entry is None:
        return Process(pid, 0, role)
    return Process(pid, entry.ppid, role, entry.comm, procfs.argv(pid), procfs.start_time(entry))


def _hear(pid: int, path: Path) -> tuple[int, ProbeBye | None]:
    client = ProbeClient(path, pid)
    try:
        said = client.details(_HEARING_SECONDS, attributes=False)
    finally:
        client.close()
    return pid, None if isinstance(said, Unavailable) else ProbeBye(said, time.time())


def _modified(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except OSError:
        return None


def _can_wait_for(pid: int) -> bool:
    try:
        os.close(os.pidfd_open(pid))
    except OSError:
        return False
    return True
