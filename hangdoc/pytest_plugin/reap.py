"""End the ranks that a test has started and nothing else: by their place below the test and their start time."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hangdoc.capture.read import procfs
from hangdoc.sidecar.abort import Members, signal_process

_GRACE_SECONDS = 3.0
"""What a launcher gets to end its ranks itself. Judgement: torchrun needs less than one where they take SIGTERM."""
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.05
_SERVERS = ("from multiprocessing.resource_tracker import", "from multiprocessing.forkserver import")
"""Helpers that multiprocessing starts with the first rank and keeps for the session."""


@dataclass
class Spared:
    """Processes below the tests that were there before this test, or that a fixture of a wider scope has started."""

    _started: dict[int, float] = field(default_factory=dict)

    def add(self, pids: Iterable[int]) -> None:
        """Spare these, and all that is below them."""
        for pid in pids:
            entry = procfs.stat(pid)
            if entry is not None:
                self._started[pid] = entry.started

    def living(self) -> frozenset[int]:
        """Those that still live; a number that was given anew does not count."""
        return frozenset(pid for pid, entry in self._read().items() if entry.started == self._started[pid])

    def _read(self) -> dict[int, procfs.Stat]:
        return {pid: entry for pid in tuple(self._started) if (entry := procfs.stat(pid)) is not None}


def begun(parent: int, spared: Collection[int], ranks: Collection[int]) -> tuple[Members, list[int]]:
    """(the processes to end, those of them that others were started by), of the jobs of ``ranks`` below ``parent``.

    A whole branch below the test is one job: bash → torchrun → ranks → DataLoader workers. Branches without any of
    ``ranks`` stay. If there are no ranks yet, every branch counts.
    """
    table = procfs.table()
    left_out = {each for root in spared for each in procfs.descendants(root, table)}
    tops = _branches(parent, table, left_out)
    families = {top: [pid for pid in procfs.descendants(top, table) if pid not in left_out] for top in tops}
    guilty = [top for top, family in families.items() if not ranks or not set(ranks).isdisjoint(family)]
    members = {pid: table[pid].started for top in guilty for pid in families[top] if table[pid].state not in "ZX"}
    return members, [top for top in guilty if top in members]


def end_ranks(parent: int, spared: Collection[int], ranks: Collection[int]) -> list[int]:
    """End them in bounded time: SIGTERM for launchers, SIGKILL for ranks that the test started itself, then SIGKILL for
    all that stays. Returns the pids that survived even that (uninterruptible)."""
    members, tops = begun(parent, spared, ranks)
    for top in tops:
        signal_process(top, members[top], signal.SIGKILL if top in ranks else signal.SIGTERM)
    _wait(members, _GRACE_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        again, _ = begun(parent, spared, [*ranks, *members])
        members.update(again)  # what a launcher started meanwhile
        left = _living(members)
        if not left or time.monotonic() > deadline:
            return sorted(left)
        for pid in left:
            signal_process(pid, members[pid], signal.SIGKILL)
        _wait(members, 1.0)


def _branches(parent: int, table: Mapping[int, procfs.Stat], left_out: Collection[int]) -> list[int]:
    """The processes right below the test; below multiprocessing's servers instead of those themselves.

    What the fork server forks has its command line, and is a branch.
    """
    children = [pid for pid, entry in table.items() if entry.ppid == parent and pid not in left_out]
    servers = {pid for pid in children if any(mark in word for word in procfs.argv(pid)[:6] for mark in _SERVERS)}
    forked = [pid for pid, entry in table.items() if entry.ppid in servers and pid not in left_out]
    return [*(pid for pid in children if pid not in servers), *forked]


def _living(members: Members) -> list[int]:
    entries = {pid: procfs.stat(pid) for pid in members}
    return [
        pid
        for pid, entry in entries.items()
        if entry is not None and entry.started == members[pid] and entry.state not in "ZX"
    ]


def _wait(members: Members, seconds: float) -> None:
    """Until all have ended, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while _living(members) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
