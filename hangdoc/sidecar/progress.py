"""Follow the ranks of one job, once a second and cheaply: which ranks exist, and whether anything moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hangdoc.capture.find.ranks import find_ranks
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import procfs
from hangdoc.capture.read.probe_client import ProbeClient, ProbeCounters
from hangdoc.capture.read.sockets import listening_ports

RESCAN_SECONDS = 10.0
_SETTLE_SECONDS = 0.9
# Searches may cost this share of a core, and this much CPU time at once: a job that has just started is searched
# each time it changes, one that forks all the time is not, and one in a huge process table is searched less often.
_SEARCH_SHARE = 0.01
_SEARCH_ALLOWANCE = 0.1
_MOST_RELATIVES = 1024
_ANSWER_SECONDS = 0.2
_LONGEST_SILENCE = 8.0
# A waiting main thread switches 0 times a second, a polling one up to 20, a training one about 100.
_MOVING_SWITCHES = 30.0
_MOVING_CPU = 0.05


@dataclass(slots=True)
class _Followed:
    pid: int
    target: RankTarget
    client: ProbeClient | None = None
    counters: ProbeCounters | None = None
    pulse: procfs.Pulse | None = None
    ask_after: float = 0.0
    silence: float = 0.0
    """Seconds to leave a silent probe alone: a rank whose GIL is held must not slow the others' round."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One round. ``ranks``: 0 also for a lone process that merely has a rank, without a group. ``changed``: ranks
    came or went, or the job opened or closed ports. ``searched``: ``targets`` are new."""

    ranks: int
    moved: bool
    changed: bool
    searched: bool


@dataclass(slots=True)
class Follower:
    """``launcher`` is the root of the job's process tree; times are monotonic seconds."""

    launcher: int
    socket_folder: Path
    left_out: Callable[[], frozenset[int]] = frozenset
    """As ``Run.left_out``."""
    targets: list[RankTarget] = field(default_factory=list)
    """Ranks at the last search: the living, and without pid the expected."""
    _listening: int = 0
    has_agent: bool = False
    """The command runs torchrun, itself or through scripts, and no rank is there: it may wait for other nodes."""
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _searched_at: float | None = None
    _allowance: float = _SEARCH_ALLOWANCE
    """CPU seconds that searches may still cost now; below 0 after one that cost more."""
    _changed: bool = False
    """The job has changed since the last search began."""
    _unsettled_until: float = 0.0
    _signs: tuple[object, ...] = ()
    _empty_searches: int = 0
    _looked_at: float = 0.0

    def beat(self, now: float) -> Beat:
        """Look at every rank once."""
        searched = self._search_is_due(now)
        changed = self.search(now) if searched else False
        elapsed, self._looked_at = now - self._looked_at, now
        pulsing = [self._pulse_moved(entry, elapsed) for entry in list(self._followed.values())]
        gone = pulsing.count(None)
        living = self._followed.values()
        counted = [self._counters_moved(entry, now) for entry in living]
        # A torch without a recorder has groups and no counters: then only the main threads show progress.
        grouped = any(entry.counters is not None and entry.counters.groups for entry in living)
        if any(counted):
            moved = True
        elif grouped:
            moved = False
        else:
            # No rank has counters, or none communicated yet. In a job that works in step, half the
            # ranks do not lie still for long.
            moved = 2 * pulsing.count(True) > len(pulsing) - gone
        alone = not grouped and len(self.targets) == 1 and (self.targets[0].world_size or 1) == 1
        ranks = 0 if alone else len(self._followed)
        return Beat(ranks, moved=moved, changed=changed or gone > 0, searched=searched)

    def sockets(self) -> dict[int, Path]:
        """The probes of the living ranks, by rank."""
        return {t.rank: t.socket for t in self.targets if t.socket is not None}

    def close(self) -> None:
        """Close all connections to probes."""
        for pid in list(self._followed):
            self._forget(pid)

    def _search_is_due(self, now: float) -> bool:
        since = now - self._searched_at if self._searched_at is not None else RESCAN_SECONDS
        groups = sum(entry.counters.group_count for entry in self._followed.values() if entry.counters)
        signs = (_modified(self.socket_folder), self._family(), groups)
        if signs != self._signs:
            # Once now and once more when it settled: a process is forked before it becomes what it will be.
            self._signs, self._changed, self._unsettled_until = signs, True, now + _SETTLE_SECONDS
        earned = _SEARCH_SHARE * since
        if self._allowance + earned <= 0:
            return False
        settled = 0 < self._unsettled_until <= now
        return self._changed or settled or since >= RESCAN_SECONDS

    def search(self, now: float, *, thorough: bool = False) -> bool:
        """Find the ranks anew; returns whether ranks or ports came or went. ``thorough``: no rank may be missing."""
        if self._searched_at is not None:
            earned = _SEARCH_SHARE * (now - self._searched_at)
            self._allowance = min(self._allowance + earned, _SEARCH_ALLOWANCE)
        self._searched_at, self._changed = now, False
        if now >= self._unsettled_until:
            self._unsettled_until = 0.0
        began = time.thread_time()
        answers = {pid: entry.counters for pid, entry in self._followed.items() if entry.counters is not None}
        # Reading stacks to find ranks that nothing else shows costs much: do it ever more rarely.
        deep = self._empty_searches > 0 and self._empty_searches & (self._empty_searches - 1) == 0
        self.targets = find_ranks(
            self.launcher,
            self.socket_folder,
            counters=answers,
            known=self.targets,
            deep=deep or thorough,
            left_out=self.left_out(),
        )
        found = {target.pid: target for target in self.targets if target.pid is not None}
        self.has_agent = not found and any(_is_agent(pid) for pid in (self.launcher, *self._family()))
        self._empty_searches = 0 if found else self._empty_searches + 1
        changed = found.keys() != self._followed.keys()
        for pid in self._followed.keys() - found.keys():
            self._forget(pid)
        for pid, target in found.items():
            entry = self._followed.setdefault(pid, _Followed(pid, target))
            entry.target = target
        listening = len(listening_ports([self.launcher, *found])) if found else 0
        changed |= listening != self._listening
        self._listening = listening
        self._allowance -= time.thread_time() - began
        return changed

    def _family(self) -> tuple[int, ...]:
        """The launcher's descendants down to the first known ranks; cheap, where the kernel lists children."""
        family: list[int] = []
        parents = [self.launcher]
        left_out = self.left_out()
        while parents and len(family) < _MOST_RELATIVES:
            children = [pid for pid in procfs.children(parents.pop()) if pid not in left_out]
            family += children
            parents += [pid for pid in children if pid not in self._followed]
        return tuple(sorted(family))

    def _forget(self, pid: int) -> None:
        entry = self._followed.pop(pid)
        if entry.client is not None:
            entry.client.close()

    def _counters_moved(self, entry: _Followed, now: float) -> bool:
        if entry.target.socket is None or now < entry.ask_after:
            return False
        if entry.client is None:
            entry.client = ProbeClient(entry.target.socket, entry.pid)
        answer = entry.client.counters(_ANSWER_SECONDS)
        if answer is None:
            entry.silence = min(max(1.0, 2 * entry.silence), _LONGEST_SILENCE)
            entry.ask_after = now + entry.silence
            return False
        entry.silence = 0.0
        before, entry.counters = entry.counters, answer
        return before is not None and _progress(before) != _progress(answer)

    def _pulse_moved(self, entry: _Followed, elapsed: float) -> bool | None:
        """True if the main thread works; None (and forgotten) if the process ended."""
        before, entry.pulse = entry.pulse, procfs.pulse(entry.pid)
        if entry.pulse is None or entry.pulse.state in "ZX":
            self._forget(entry.pid)
            return None
        if before is None or elapsed <= 0:
            return True  # seen for the first time
        cpu = entry.pulse.cpu - before.cpu
        if cpu >= _MOVING_CPU * elapsed:
            return True
        # A rank that we can ask and that has no group yet sleeps a hundred times a second while its store waits
        # for the others: its switches say nothing.
        switches = 0 if entry.counters is not None else entry.pulse.voluntary_switches - before.voluntary_switches
        return switches >= _MOVING_SWITCHES * elapsed


def _is_agent(pid: int) -> bool:
    words = procfs.argv(pid)[:6]
    return any(
        word.endswith("torchrun") or word in ("torch.distributed.run", "torch.distributed.launch") for word in words
    )


def _progress(counters: ProbeCounters) -> tuple[object, ...]:
    # Not the store's calls: a loop that asks for a key that never comes is no progress.
    return counters.groups, counters.group_count, counters.initialized, counters.point_to_points


def _modified(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
