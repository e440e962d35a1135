"""The watch loop: look at the ranks once a second; when nothing moves for long, look closely."""

from __future__ import annotations

import math
import time

from hangdoc.capture.find.target import host_name
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.abort import end_job
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Conclusion, Listener, RankToEnd
from hangdoc.sidecar.meeting.records import Verdict
from hangdoc.sidecar.meeting.together import Together
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.progress import Follower
from hangdoc.sidecar.ranks import Roster
from hangdoc.sidecar.restart import Restarts, end_rank
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
        self._follower = Follower(run.launcher, run.socket_folder, run.left_out)
        self._roster = Roster(run)
        self._rhythm = Rhythm(options.stall_after, time.monotonic())
        self._together = Together(options, listener.on_alone)
        self._recaptures: Recaptures | None = None
        self._outcome: str | None = None
        self._judged_elsewhere = False
        """Another host's watch has called this stall a hang."""
        self._word: Verdict | None = None
        """The verdict of another host's watch for which something is still to be ended here."""
        self._heeds_at = 0.0
        """Seconds without progress after which that verdict is (again) compared with what this host sees."""
        self._doubt: str | None = None
        """What a look at this stall shows that does not fit such a verdict; '' if all fits, None before a look."""
        self._stalls = 0
        self._restarts = Restarts()

    def watch(self) -> bool:
        """Watch until the launcher ends; True if hangdoc ended the job."""
        try:
            if self._watch_until_end():
                return True
            if not self._state.asked_to_end:
                self._tell_the_end()
            elif self._outcome == "hang":
                self._listener.on_given_up()
            self._listener.wait_for_command()
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
            self._hear_of_a_restart()
        if self._restarts.under_way:
            self._await_new_ranks(now)
        elif beat.ranks == 0 and not self._follower.has_agent:
            self._rhythm.changed(now)  # not a distributed job, or not yet
        elif beat.moved:
            self._moved(now)
            self._listener.on_progress(self._follower.sockets(), now)
        elif beat.changed:
            self._changed(now)
        elif self._quiet(now):
            return True
        return self._meet(now)

    def _meet(self, now: float) -> bool:
        """Do what the watches on other hosts need of this one; True if it ended the job for their verdict."""
        quiet, patience = self._rhythm.quiet_for(now), self._rhythm.patience
        self._together.tell(self._follower.targets, quiet, now)
        if self._together.asks():
            snapshot = self._capture(quiet, patience)
            self._together.answer(snapshot)
            if self._options.on_hang != "report":  # now, as the verdict is to be acted on when it comes
                self._doubt = self._listener.doubt(snapshot)
        verdict = self._together.verdict()
        if verdict is not None:
            self._outcome = verdict.outcome
            self._judged_elsewhere = verdict.outcome == "hang"
            self._listener.on_verdict(_concluded(verdict), verdict.host, verdict.hosts)
            acts = (self._asked_to("abort") and verdict.may_end) or (self._asked_to("restart") and verdict.end)
            self._word = verdict if acts else None
            if self._doubt is not None:
                self._heeds_at = 0.0
        return self._word is not None and self._heed(self._word, quiet, patience)

    def _heed(self, word: Verdict, quiet: float, patience: float) -> bool:
        """Do what the user asked for, if another host's verdict fits what this one sees; True if that ended the job.

        Whoever reaches the job's store can speak for the lead. So its word ends nothing that has not stood still for as
        long as this watch's own patience, and nothing that this host sees at work: that only once the user gives up.
        """
        if quiet < max(patience, self._heeds_at):
            return False
        if self._doubt is None:
            self._doubt = self._listener.doubt(self._capture(quiet, patience))
        after = time.monotonic()
        if self._follower.beat(after).moved:
            self._moved(after)
            return False
        if self._doubt:
            self._listener.on_spared(self._doubt)
            give_up = self._options.give_up_after
            self._heeds_at, self._doubt = give_up if quiet < give_up else math.inf, None
            return False
        self._word = None
        conclusion = _concluded(word)
        if self._asked_to("restart") and conclusion.end is not None:
            self._restart(conclusion.end)
        return self._asked_to("abort") and self._abort()

    def _changed(self, now: float) -> None:
        if self._recaptures is not None:
            self._listener.on_change(self._rhythm.quiet_for(now))
        self._rhythm.changed(now)
        self._forget_stall()

    def _forget_stall(self) -> None:
        self._recaptures = self._word = self._doubt = None
        self._heeds_at = 0.0
        self._judged_elsewhere = False

    def _moved(self, now: float) -> None:
        gap = self._rhythm.moved(now)
        self._roster.forget_journals()
        if self._outcome is not None:
            self._listener.on_resume(gap)
        self._outcome = None
        self._forget_stall()

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
        self._hear_of_a_restart()
        snapshot = stalled_job(self._run, self._options, self._roster, quiet=quiet, patience=patience)
        self._roster.keep_journals(snapshot)
        return snapshot

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
        if _ended_meanwhile(snapshot):
            self._changed(after)  # if that was no good end, the launcher's status will say so
            return False
        self._outcome = self._listener.on_stall(snapshot, self._stalls)
        conclusion = self._listener.conclusion()
        self._listener.after_report()
        acts = self._asked_to("abort") or self._asked_to("restart")
        if acts and not self._still_hangs_after_the_command():
            return False
        if conclusion is not None:
            self._together.conclude(conclusion)
        if self._asked_to("restart") and conclusion is not None and conclusion.end is not None:
            self._restart(conclusion.end)
        return self._asked_to("abort") and self._listener.may_end() and self._abort()

    def _still_hangs_after_the_command(self) -> bool:
        """Wait for the user's command, which may look at the job: no host ends anything before. False if the job moved
        or ended meanwhile."""
        self._listener.wait_for_command()
        if self._state.ended():
            return False
        now = time.monotonic()
        if self._follower.beat(now).moved:
            self._moved(now)
            return False
        return True

    def _asked_to(self, what: str) -> bool:
        """True if there is a hang, and the user asked for this then."""
        return self._outcome == "hang" and self._options.on_hang == what

    def _restart(self, end: RankToEnd) -> None:
        """End the rank if it runs on this host, and wait for new ranks in any case."""
        if self._restarts.was_in_vain(end):
            self._listener.on_no_restart("an equal verdict has led to a restart before")
            return
        members = self._roster.members()
        own = members.get(end.rank)
        here = own is not None and own.process.pid == end.pid and end.host.partition("#")[0] == host_name()
        if not here and self._restarts.given_up:
            self._listener.on_no_restart("another host was to start one before, and nothing came of it")
            return
        if own is not None and here and (why := end_rank(end, dict(own.target.environment))):
            self._listener.on_no_restart(why)
            return
        self._restarts.begin(end, (member.process.pid for member in members.values()), time.monotonic())
        self._listener.on_restart(end, here=here)

    def _hear_of_a_restart(self) -> None:
        """Tell of ranks that the launcher has started anew by itself, after one of them had failed."""
        ended = self._roster.take_ended_round()
        if ended is None or self._restarts.under_way:
            return
        from hangdoc.sidecar.snapshots import ended_job  # here, as above

        self._outcome = None
        self._forget_stall()
        snapshot = ended_job(self._run, self._options, ended.roster, None) if ended.roster is not None else None
        self._listener.on_workers_restarted(snapshot, ended.restart, ended.most)

    def _await_new_ranks(self, now: float) -> None:
        """Between the end of a rank and the new ranks nothing is a stall: what stands still was ended by us."""
        pids = (member.process.pid for member in self._roster.members().values())
        living = frozenset(pid for pid in pids if not self._roster.has_ended(pid))
        if self._restarts.has_come(living):
            self._outcome = None
            self._forget_stall()
            self._listener.on_restarted()
        elif self._restarts.is_overdue(now):
            self._listener.on_no_restart("its launcher has not started new ranks in time")
            if living == self._restarts.before:
                self._restarts.give_up()
        self._rhythm.changed(now)

    def _abort(self) -> bool:
        survivors = end_job(self._run.launcher, self._run.socket_folder, self._state.ended)
        self._listener.on_abort(survivors)
        return True

    def _tell_the_end(self) -> None:
        if self._judged_elsewhere:
            self._listener.on_given_up()  # the hang ended it
            return
        if not self._roster.members():
            return
        if self._restarts.under_way:
            self._listener.on_no_restart("the command ended instead of starting new ranks")
            return
        from hangdoc.sidecar.snapshots import ended_job  # here, as above

        snapshot = ended_job(self._run, self._options, self._roster, self._state.status)
        found = self._together.end(snapshot)
        if isinstance(found, JobSnapshot):
            self._listener.on_end(found)
            conclusion = self._listener.conclusion()
            if conclusion is not None:
                self._together.conclude(conclusion, last=True)
        elif found is not None:
            self._listener.on_verdict(_concluded(found), found.host, found.hosts)


def _concluded(verdict: Verdict) -> Conclusion:
    end = RankToEnd(*verdict.end) if verdict.end else None
    said = (verdict.outcome, verdict.sentence, verdict.path)
    return Conclusion(*said, verdict.may_end, end, fix=verdict.fix, news=verdict.news)


def _ended_meanwhile(snapshot: JobSnapshot) -> bool:
    """Did every rank that lived when the look began end before it was over?"""
    living = [rank for rank in snapshot.ranks if rank.process is not None and rank.process.looks]
    return bool(living) and all(rank.exit is not None for rank in living)
