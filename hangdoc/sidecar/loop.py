"""The watch loop: look at the ranks once a second; when nothing moves for long, look closely."""

from __future__ import annotations

import time

from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.abort import end_job
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Conclusion, Listener
from hangdoc.sidecar.meeting.together import Together
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.progress import Follower
from hangdoc.sidecar.ranks import Roster
from hangdoc.sidecar.rhythm import Recaptures, Rhythm

PERIOD_SECONDS = 1.0
# A round that comes this late means that we were stopped, and so most likely was the job.
_SLEPT_SECONDS = 5.0
_STILL_SHARE = 0.5
"""Of our own patience, for which our ranks must have stood still before another host's verdict may end them. Hosts see
the same stall begin at slightly different times. Judgement."""


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
        self._together = Together(options, listener.on_alone)
        self._recaptures: Recaptures | None = None
        self._outcome: str | None = None
        self._judged_elsewhere = False
        """Another host's watch has called this stall a hang."""
        self._stalls = 0

    def watch(self) -> bool:
        """Watch until the launcher ends; True if hangdoc ended the job."""
        try:
            if self._watch_until_end():
                return True
            if not self._state.asked_to_end:
                self._tell_the_end()
        finally:
            self._together.close()
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
            self._judged_elsewhere = False
        elif self._quiet(now):
            return True
        return self._meet(now)

    def _meet(self, now: float) -> bool:
        """Do what the watches on other hosts need of this one; True if it ended the job for their verdict."""
        quiet, patience = self._rhythm.quiet_for(now), self._rhythm.patience
        self._together.tell(self._follower.targets, quiet, now)
        if self._together.asks():
            self._together.answer(self._capture(quiet, patience))
        verdict = self._together.verdict()
        if verdict is None:
            return False
        self._outcome = verdict.outcome
        self._judged_elsewhere = verdict.outcome == "hang"
        conclusion = Conclusion(verdict.outcome, verdict.sentence, verdict.path, verdict.may_end)
        self._listener.on_verdict(conclusion, verdict.host, verdict.hosts)
        # Another host's word ends nothing that moves here, or moved a moment ago: whoever reaches the job's store can
        # speak for the lead.
        still = quiet >= patience * _STILL_SHARE and not self._follower.beat(time.monotonic()).moved
        return still and verdict.may_end and self._may_abort() and self._abort()

    def _moved(self, now: float) -> None:
        gap = self._rhythm.moved(now)
        if self._outcome is not None:
            self._listener.on_resume(gap)
        self._outcome = self._recaptures = None
        self._judged_elsewhere = False

    def _quiet(self, now: float) -> bool:
        quiet, patience = self._rhythm.quiet_for(now), self._rhythm.patience
        if self._judged_elsewhere:
            return False
        if self._recaptures is None:
            if quiet < patience:
                return False
        elif self._outcome == "hang" or not self._recaptures.due(quiet, patience):
            return False
        if self._together.holds(quiet, patience, now):
            return False
        if self._recaptures is None:
            self._recaptures = Recaptures(self._options.give_up_after)
            self._stalls += 1
        return self._look_closely(quiet, patience)

    def _capture(self, quiet: float, patience: float) -> JobSnapshot:
        """What this host shows of the stalled job."""
        # Imported here: a healthy job's watcher never needs what looks closely, and stays smaller without it.
        from hangdoc.sidecar.snapshots import stalled_job

        self._follower.search(time.monotonic(), thorough=True)
        self._roster.update(self._follower.targets)
        return stalled_job(self._run, self._options, self._roster, quiet=quiet, patience=patience)

    def _look_closely(self, quiet: float, patience: float) -> bool:
        snapshot = self._together.look(lambda: self._capture(quiet, patience))
        assert self._recaptures is not None
        self._recaptures.took(quiet)
        if self._state.ended():
            return False
        after = time.monotonic()
        if self._follower.beat(after).moved:
            self._moved(after)
            return False
        self._outcome = self._listener.on_stall(snapshot, self._stalls)
        conclusion = self._listener.conclusion()
        if conclusion is not None:
            self._together.conclude(conclusion)
        return self._may_abort() and self._listener.may_end() and self._abort()

    def _may_abort(self) -> bool:
        return self._outcome == "hang" and self._options.on_hang == "abort"

    def _abort(self) -> bool:
        survivors = end_job(self._run.launcher, self._run.socket_folder, self._state.ended)
        self._listener.on_abort(survivors)
        return True

    def _tell_the_end(self) -> None:
        if not self._roster.members() or self._judged_elsewhere:
            return  # of a hang that ended it, the verdict has been told
        from hangdoc.sidecar.snapshots import ended_job  # here, as above

        snapshot = ended_job(self._run, self._options, self._roster, self._state.status)
        found = self._together.end(snapshot)
        if isinstance(found, JobSnapshot):
            self._listener.on_end(found)
            conclusion = self._listener.conclusion()
            if conclusion is not None:
                self._together.conclude(conclusion, last=True)
        elif found is not None:
            conclusion = Conclusion(found.outcome, found.sentence, found.path, found.may_end)
            self._listener.on_verdict(conclusion, found.host, found.hosts)
