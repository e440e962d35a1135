"""The watch loop: look at the ranks once a second; when nothing moves for long, look closely."""

from __future__ import annotations

import time

from hangdoc.sidecar.abort import end_job
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Listener
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.progress import Follower
from hangdoc.sidecar.ranks import Roster
from hangdoc.sidecar.rhythm import Recaptures, Rhythm

PERIOD_SECONDS = 1.0
# A round that comes this late means that we were stopped, and so most likely was the job.
_SLEPT_SECONDS = 5.0


class Watcher:
    """Watches one run until its launcher ends."""

    def __init__(self, run: Run, options: WatchOptions, listener: Listener, state: CommandState) -> None:
        self._run = run
        self._options = options
        self._listener = listener
        self._state = state
        self._follower = Follower(run.launcher, run.socket_folder)
        self._roster = Roster(run)
        self._rhythm = Rhythm(options.stall_after, time.monotonic())
        self._recaptures: Recaptures | None = None
        self._outcome: str | None = None
        self._stalls = 0

    def watch(self) -> bool:
        """Watch until the launcher ends; True if hangdoc ended the job."""
        try:
            if self._watch_until_end():
                return True
            if not self._state.asked_to_end:
                self._tell_the_end()
        finally:
            self._follower.close()
            self._roster.close()
        return False

    def _watch_until_end(self) -> bool:
        last = time.monotonic()
        while not self._ended(last + PERIOD_SECONDS):
            now = time.monotonic()
            if now - last > _SLEPT_SECONDS:
                self._rhythm.slept(now - last - PERIOD_SECONDS)
            if self._round(now):
                return True
            last = time.monotonic()
        return False

    def _ended(self, until: float) -> bool:
        """Sleep ``until`` the next round, but not through the end of the launcher or of a rank."""
        while (left := until - time.monotonic()) > 0 and not self._state.ended():
            if not self._roster.can_wait:
                self._state.ended(left)
                self._roster.wait(0.0)
                continue
            ended = self._roster.wait(left)
            if self._roster.has_ended(self._run.launcher):
                return self._state.ended(PERIOD_SECONDS)  # it is about to be reaped
            if ended:
                self._roster.hear_survivors()
        return self._state.ended()

    def _round(self, now: float) -> bool:
        beat = self._follower.beat(now)
        if beat.searched:
            self._roster.update(self._follower.targets)
        if beat.ranks == 0 and not self._follower.has_agent:
            self._rhythm.changed(now)  # not a distributed job, or not yet
        elif beat.moved:
            self._moved(now)
            self._listener.on_progress(self._follower.sockets(), now)
        elif beat.changed:
            self._rhythm.changed(now)
            self._recaptures = None
        else:
            return self._quiet(now)
        return False

    def _moved(self, now: float) -> None:
        gap = self._rhythm.moved(now)
        if self._outcome is not None:
            self._listener.on_resume(gap)
        self._outcome = self._recaptures = None

    def _quiet(self, now: float) -> bool:
        quiet, patience = self._rhythm.quiet_for(now), self._rhythm.patience
        if self._recaptures is None:
            if quiet < patience:
                return False
            self._recaptures = Recaptures(self._options.give_up_after)
            self._stalls += 1
        elif self._outcome == "hang" or not self._recaptures.due(quiet, patience):
            return False
        return self._look_closely(quiet, patience)

    def _look_closely(self, quiet: float, patience: float) -> bool:
        # Imported here: a healthy job's watcher never needs what looks closely, and stays smaller without it.
        from hangdoc.sidecar.snapshots import stalled_job

        self._follower.search(time.monotonic(), thorough=True)
        self._roster.update(self._follower.targets)
        snapshot = stalled_job(self._run, self._options, self._roster, quiet=quiet, patience=patience)
        assert self._recaptures is not None
        self._recaptures.took(quiet)
        if self._state.ended():
            return False
        after = time.monotonic()
        if self._follower.beat(after).moved:
            self._moved(after)
            return False
        self._outcome = self._listener.on_stall(snapshot, self._stalls)
        if self._outcome != "hang" or self._options.on_hang != "abort" or not self._listener.may_end():
            return False
        survivors = end_job(self._run.launcher, self._run.socket_folder, self._state.ended)
        self._listener.on_abort(survivors)
        return True

    def _tell_the_end(self) -> None:
        if not self._roster.members():
            return
        from hangdoc.sidecar.snapshots import ended_job  # here, as above

        snapshot = ended_job(self._run, self._options, self._roster, self._state.status)
        if snapshot is not None:
            self._listener.on_end(snapshot)
