"""Everybody who ever was a rank of the job: living, ended and how, or promised and never seen.

Kept while they live, so that a dead rank, and a job that ended by itself, can still be diagnosed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hangdoc.capture import logs, procfs
from hangdoc.capture.discovery import RankTarget
from hangdoc.capture.exits import ExitWatch
from hangdoc.capture.journal import ProbeBye, read_bye
from hangdoc.model.process import Process, ProcessExit
from hangdoc.sidecar.supervise import Run


@dataclass(frozen=True, slots=True)
class Member:
    """A rank and what must be read while it lives. ``log_paths``: where its output goes, if to files."""

    target: RankTarget
    process: Process
    log_paths: tuple[str, ...]


class Roster:
    """Not for several threads at once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watch = ExitWatch()
        self._watch.add(run.launcher)
        self._members: dict[int, Member] = {}
        self._absent: list[RankTarget] = []
        self._exits: dict[int, ProcessExit] = {}
        self.launcher = _describe(run.launcher, "launcher")
        self.can_wait = _can_wait_for(run.launcher)
        """False if the launcher ended already, and before Linux 5.3."""

    def update(self, targets: Iterable[RankTarget]) -> None:
        """These are the ranks that live now, and those that are expected."""
        self._absent = []
        for target in targets:
            if target.pid is None:
                self._absent.append(target)
            elif (known := self._members.get(target.pid)) is not None:
                self._members[target.pid] = replace(known, target=target)
            else:
                self._watch.add(target.pid)
                process = _describe(target.pid, "rank")
                self._members[target.pid] = Member(target, process, logs.log_paths(target.pid))

    def wait(self, seconds: float) -> bool:
        """Sleep until a rank or the launcher ends, at most ``seconds``; whether one did."""
        self._watch.wait(seconds)
        ended = self._watch.poll()
        self._exits.update(ended)
        return bool(ended)

    def wait_for_exits(self, seconds: float) -> None:
        """Wait until all ranks ended, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while any(member.process.pid not in self._exits for member in self.members().values()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.wait(left)

    def has_ended(self, pid: int) -> bool:
        """Whether this rank, or the launcher, is known to have ended."""
        return pid in self._exits

    def members(self) -> dict[int, Member]:
        """One process per rank, of the latest restart, by rank; the living before the dead, the young first."""
        latest = max((member.target.restart for member in self._members.values()), default=0)
        ended_first = sorted(
            (member for member in self._members.values() if member.target.restart == latest),
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
            bye = self._last_words(member)
            if bye is not None:
                ended = replace(ended, at=min(ended.at, bye.at), exception=bye.exception, stack=bye.stack)
            found[rank] = ended
        return found

    def byes(self) -> dict[int, ProbeBye]:
        """What ranks left as they exited, by rank."""
        read = {rank: self._last_words(member) for rank, member in self.members().items()}
        return {rank: bye for rank, bye in read.items() if bye is not None}

    def log_paths(self) -> dict[int, tuple[str, ...]]:
        """Where ranks write to, by rank."""
        return {rank: member.log_paths for rank, member in self.members().items()}

    def close(self) -> None:
        """Forget all processes."""
        self._watch.close()

    def _last_words(self, member: Member) -> ProbeBye | None:
        return read_bye(self._run.socket_folder / f"{member.process.pid}.bye")


def _describe(pid: int, role: str) -> Process:
    entry = procfs.stat(pid)
    if entry is None:
        return Process(pid, 0, role)
    return Process(pid, entry.ppid, role, entry.comm, procfs.argv(pid), procfs.start_time(entry))


def _can_wait_for(pid: int) -> bool:
    try:
        os.close(os.pidfd_open(pid))
    except OSError:
        return False
    return True
