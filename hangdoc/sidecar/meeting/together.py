"""What a watch does differently because there are others: when it looks, what at, and whose verdict it tells."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from hangdoc.capture.find.target import RankTarget, host_identity, host_name
from hangdoc.model.collector import without_collector
from hangdoc.model.same_job import HOSTS, Part
from hangdoc.model.snapshot import JobSnapshot, Unavailable
from hangdoc.model.wording import name_ranks
from hangdoc.sidecar.listener import Conclusion
from hangdoc.sidecar.meeting.lead import LeadView, Seat
from hangdoc.sidecar.meeting.meeting import AloneView, Meeting, View
from hangdoc.sidecar.meeting.member import MemberView
from hangdoc.sidecar.meeting.records import Verdict
from hangdoc.sidecar.meeting.wishes import FEW_HOSTS, Standing
from hangdoc.sidecar.options import WatchOptions

if TYPE_CHECKING:
    from hangdoc.sidecar.meeting.digest import Digested
    from hangdoc.sidecar.meeting.gathering import Reading

_STILL_SECONDS = 3.0
"""Without progress, after which the others learn that the ranks do not move: steps may take a second. Judgement."""
_MEETING_SECONDS = 20.0
"""For so long after the job is seen to have ranks elsewhere their watches may take to come. Judgement: importing torch
takes most of it."""
_ANSWER_SECONDS = 8.0
"""For a snapshot of another host. A capture takes two seconds, one with silent sources five (``capture_host``)."""
_REST_SECONDS = 4.0  # between two looks that a lead asks for; it has no reason to ask more often
_READING_SECONDS = 4.0
"""Of those in which digests are read as they come. Judgement."""
_UNHEARD_SECONDS = 20.0
"""A member judges by itself if the lead has not asked for so long after patience ended, and names no reason."""
_HEARING_SECONDS = 3.0
_LONGEST_SENTENCE = 4000
_END_SECONDS = 6.0
"""For the others' launchers to end after ours has, where a rank failed. Judgement."""


class Together:
    """Used by the watch's thread alone. ``say`` prints a line; each reason to go on alone is said once."""

    def __init__(self, options: WatchOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._meeting = Meeting(options.meet)
        self._identity = host_identity()
        self._lacking_since: float | None = None
        self._pids: frozenset[int] = frozenset()
        """Of the latest ranks on this host."""
        self._began_anew = False
        """There have been other ranks before: a meeting that was lost may have been theirs."""
        self._complete = 0
        """The size of the job whose ranks all ran on this host."""
        self._answered: tuple[str, int] = ("", 0)
        """(lead, round) that this watch has answered."""
        self._rests_until = 0.0
        self._heard: tuple[str, int] = ("", 0)
        """(lead, round) of which this watch has heard, and when."""
        self._lead_spoke_at = float("-inf")
        self._delivered: Verdict | None = None
        self._said = ""
        self._round, self._hosts = 0, 1
        self._standing = Standing()

    def tell(self, targets: Sequence[RankTarget], quiet: float, now: float) -> None:
        """How our own ranks are; ``quiet``: seconds since they last moved."""
        self._standing = Standing(tuple(targets), quiet if quiet >= _STILL_SECONDS else None, now)
        self._notice_new_ranks(now)
        if self._standing.ranks and len(self._standing.ranks) == self._standing.world:
            self._complete, self._lacking_since = self._standing.world, None
        self._meeting.tell(self._standing)
        # Of a job that was complete on this host, ranks may die; they are not elsewhere then.
        complete = self._complete == self._standing.world
        if self._lacking_since is None and not complete and self._standing.has_ranks_elsewhere(os.environ):
            self._lacking_since = now
            self._meeting.begin()
        view = self._meeting.view
        if isinstance(view, MemberView) and (view.lead, view.asked) != self._heard:
            self._heard = (view.lead, view.asked)
            self._lead_spoke_at = now if view.asked else float("-inf")

    def _notice_new_ranks(self, now: float) -> None:
        """After a restart other hosts may take part, and rank 0 may run elsewhere: their watches may take to come."""
        pids = frozenset(target.pid for target in self._standing.targets if target.pid is not None)
        if not pids <= self._pids:
            self._complete = 0
            if self._lacking_since is not None:
                self._lacking_since, self._began_anew = now, True
        self._pids = pids or self._pids

    def holds(self, quiet: float, patience: float, now: float) -> bool:
        """True if it is not for this watch to look at the stall now."""
        # One rule for each place in the meeting: the lead, a member, a watch that has found nobody yet.
        if self._lacking_since is None or self._options.meet == "off":
            return False
        if self._meeting.verdict not in (None, self._delivered):
            return True  # the lead has judged, and may have ended its job and the meeting by now: its word comes first
        view = self._meeting.view
        coming = now - self._lacking_since < _MEETING_SECONDS + self._meeting.late_by
        if isinstance(view, LeadView):
            if quiet >= self._options.give_up_after:
                return False
            working = any(seat.works(now, patience) for seat in view.seats)
            return working or (coming and self._lacks_ranks(view))
        if isinstance(view, MemberView) and not view.silent and not view.refused:
            spoke = now - self._lead_spoke_at < quiet  # of this stall
            waits = view.waiting and quiet < 2 * self._options.give_up_after
            return quiet < patience + _UNHEARD_SECONDS or spoke or waits
        return coming and isinstance(view, AloneView) and (self._began_anew or not view.lost)

    def look(self, capture: Callable[[], JobSnapshot]) -> JobSnapshot:
        """What all hosts show now, as far as they answer; ``capture``: looks at this one."""
        view = self._meeting.view
        if not isinstance(view, LeadView) or not view.fitting():
            self._tell_that_alone(view)
            return self._alone(capture())
        now = time.monotonic()
        self._round = self._meeting.ask(self._representatives(view.fitting()))
        own = capture()
        try:
            with without_collector():
                return self._with_answers(own, now)
        except Exception as error:  # what others sent, or a bug in reading it, must not cost our own view
            return replace(own, unavailable=(*own.unavailable, _our_fault(error)))

    def conclude(self, conclusion: Conclusion, *, last: bool = False) -> None:
        """Tell the others what came of the look. Before a rank or the job ends for it, and after its ``last`` word,
        wait a moment until they know."""
        if not self._round:
            return
        self._meeting.publish(
            Verdict(
                round=self._round,
                outcome=conclusion.outcome,
                sentence=conclusion.sentence[:_LONGEST_SENTENCE],
                host=host_name(),
                path=conclusion.path,
                may_end=conclusion.may_end,
                hosts=self._hosts,
                end=astuple(conclusion.end) if conclusion.end is not None else (),
                fix=conclusion.fix[:_LONGEST_SENTENCE],
                news=conclusion.news[:_LONGEST_SENTENCE],
            )
        )
        number, self._round = self._round, 0
        if last or (conclusion.outcome == "hang" and self._options.on_hang != "report"):
            self._wait_until_heard(number)

    def asks(self) -> bool:
        """True if the lead wants a snapshot of this host, which it has not got."""
        view = self._meeting.view
        wanted = isinstance(view, MemberView) and view.wanted and (view.lead, view.asked) != self._answered
        return wanted and time.monotonic() >= self._rests_until

    def answer(self, snapshot: JobSnapshot) -> None:
        """Hand over what was asked for."""
        from hangdoc.sidecar.meeting.gathering import prepared

        view = self._meeting.view
        if isinstance(view, MemberView):
            self._answered, self._rests_until = (view.lead, view.asked), time.monotonic() + _REST_SECONDS
            sent = prepared(snapshot, digest=view.digests, send_sources=self._options.meet_send_sources)
            self._meeting.answer(view.asked, *sent)

    def verdict(self) -> Verdict | None:
        """What the lead has concluded, if that is new."""
        found = self._meeting.verdict
        if found is None or found is self._delivered:
            return None
        self._delivered = found
        return found

    def end(self, own: JobSnapshot | None) -> JobSnapshot | Verdict | None:
        """After the command has ended; ``own``: what this host shows of it, None if nothing failed.

        Returns what is to be judged here, or the lead's verdict.
        """
        view = self._meeting.view
        if (found := self.verdict()) is not None:
            return found
        if isinstance(view, MemberView):
            return self._end_of_member(own, digest=view.digests)
        if own is None or not isinstance(view, LeadView) or not view.fitting():
            return own
        view = self._meeting.wait_for(
            lambda now: not isinstance(now, LeadView) or all(seat.beat.left for seat in now.fitting()), _END_SECONDS
        )
        if not isinstance(view, LeadView):
            return own
        self._round = self._meeting.ask(())
        try:
            with without_collector():
                return self._joined(own, view, {}, [])
        except Exception as error:  # as in ``look``
            return replace(own, unavailable=(*own.unavailable, _our_fault(error)))

    def close(self) -> None:
        """Leave the others."""
        self._meeting.close()

    def _end_of_member(self, own: JobSnapshot | None, *, digest: bool) -> JobSnapshot | Verdict | None:
        if own is None:
            self._meeting.leave(b"")
            return None
        from hangdoc.sidecar.meeting.gathering import prepared

        self._meeting.leave(*prepared(own, digest=digest, send_sources=self._options.meet_send_sources))
        before = self._delivered
        self._meeting.wait_for(
            lambda now: not isinstance(now, MemberView) or now.verdict not in (None, before),
            _END_SECONDS + _HEARING_SECONDS,
        )
        return self.verdict() or own

    def _wait_until_heard(self, number: int) -> None:
        self._meeting.wait_for(lambda now: not isinstance(now, LeadView) or now.heard >= number, _HEARING_SECONDS)

    def _lacks_ranks(self, view: LeadView) -> bool:
        """True if there are ranks that no watch has."""
        covered = {*self._standing.ranks, *(rank for seat in view.fitting() for rank in seat.beat.ranks)}
        return any(rank not in covered for rank in range(self._standing.world))

    def _representatives(self, seats: Sequence[Seat]) -> tuple[str, ...]:
        """One watch of each other host: it sees what others of its host see."""
        chosen: dict[str, str] = {}
        for seat in sorted(seats, key=lambda seat: seat.beat.member):
            where = seat.beat.identity or seat.beat.member
            if where != self._identity and not seat.beat.left:
                chosen.setdefault(where, seat.beat.member)
        return tuple(chosen.values())

    def _with_answers(self, own: JobSnapshot, asked_at: float) -> JobSnapshot:
        """``own`` with the snapshots of the hosts that answer in time."""
        number = self._round
        view = self._meeting.view
        digest = reading = None
        if isinstance(view, LeadView) and len(view.asked) > FEW_HOSTS:
            from hangdoc.capture.safe.spare_memory import spare_memory
            from hangdoc.model.codec import Allowance
            from hangdoc.sidecar.meeting.gathering import Reading, own_digest

            digest = own_digest(own)  # now, as it takes a while in which nothing else is to be done
            reading = Reading(Allowance(spare_memory()))
            self._read_what_comes(number, asked_at, reading)
        view = self._gathered(number, asked_at)
        if not isinstance(view, LeadView):
            self._tell_that_alone(view)
            self._round = 0
            return self._alone(own)
        notes: list[Unavailable] = []
        whole = self._joined(own, view, view.answers, notes, digest, reading)
        seen = {rank.rank for rank in whole.ranks if rank.process is not None or rank.exit is not None}
        more = tuple(
            seat.beat.member
            for seat in view.fitting()
            if not seat.silent(time.monotonic())
            and not seat.beat.left
            and seat.beat.member not in view.answers
            and not seen.issuperset(seat.beat.ranks)
        )
        if not more:
            return whole
        # A watch of the same host did not see them: another user's, or in another container.
        answers = dict(view.answers)
        self._round = self._meeting.ask(more)
        later = self._gathered(self._round, time.monotonic())
        return self._joined(own, later, {**answers, **later.answers}, []) if isinstance(later, LeadView) else whole

    def _read_what_comes(self, number: int, asked_at: float, reading: Reading) -> None:
        """Read digests until all are here. In the last seconds nothing may keep the meeting from taking what comes."""
        until = asked_at + _READING_SECONDS

        def something(view: View) -> bool:
            return _all_answered(view, number) or (_is_of(view, number) and bool(reading.unread(view)))

        while (left := until - time.monotonic()) > 0:
            view = self._meeting.wait_for(something, left)
            if _all_answered(view, number) or not _is_of(view, number) or not reading.unread(view):
                return
            reading.read(view)

    def _gathered(self, number: int, asked_at: float) -> View:
        seconds = max(0.0, asked_at + _ANSWER_SECONDS - time.monotonic())
        return self._meeting.wait_for(lambda view: _all_answered(view, number), seconds)

    def _handed_over(
        self,
        own: JobSnapshot,
        view: LeadView,
        answers: Mapping[str, bytes | str],
        digest: Digested | None,
        reading: Reading,
    ) -> dict[str, JobSnapshot | bytes | str]:
        """Member → its snapshot, still packed, or put together from its digest and the pieces asked for; or why not."""
        from hangdoc.sidecar.meeting.gathering import digests_in, own_digest, unfolded
        from hangdoc.sidecar.meeting.parts import ranks_beside
        from hangdoc.sidecar.meeting.rebuilt_ranks import Speaker

        fits = {seat.beat.member for seat in view.fitting()}
        came = {member: found for member, found in {**view.ends, **answers}.items() if member in fits}
        shown: dict[str, JobSnapshot | bytes | str] = {**came}
        digests = digests_in(came)
        if digests:
            beside = ranks_beside(view)
            speakers = {
                seat.beat.member: Speaker(seat.beat.host, beside[seat.beat.member], asked=seat.beat.member in answers)
                for seat in view.fitting()
            }
            read, number = unfolded(self._meeting, digest or own_digest(own), digests, speakers, reading)
            shown |= read
            self._round = number or self._round
        return shown

    def _joined(
        self,
        own: JobSnapshot,
        view: LeadView,
        answers: Mapping[str, bytes | str],
        notes: list[Unavailable],
        digest: Digested | None = None,
        reading: Reading | None = None,
    ) -> JobSnapshot:
        """``own`` and all that others have handed over, with a note on each host that has not. ``digest``: of ``own``,
        if it has been made. ``reading``: of the others', as far as they have been read."""
        from hangdoc.capture.safe.spare_memory import spare_memory
        from hangdoc.model.codec import Allowance
        from hangdoc.sidecar.meeting.gathering import Reading
        from hangdoc.sidecar.meeting.parts import parts_of
        from hangdoc.sidecar.meeting.wire import joined, placed_elsewhere

        now = time.monotonic()
        reading = reading or Reading(Allowance(spare_memory()))
        shown = self._handed_over(own, view, answers, digest, reading)
        others, absent, clocks = parts_of(own, view, answers, shown, reading.room, self._identity)
        notes += absent
        fitting = view.fitting()
        if fitting and all(seat.silent(now) for seat in fitting):
            notes.append(Unavailable(HOSTS, "no other host answers: what failed is the meeting of the watches"))
        whole = joined(Part("this host", own), others, read_sources=self._options.read_sources, clocks=clocks)
        self._hosts = len(whole.hosts) or 1 + len(others)
        last_seen = {rank: seat.beat.host for seat in fitting for rank in seat.beat.ranks}
        whole = placed_elsewhere(whole, last_seen)
        return replace(whole, unavailable=tuple(dict.fromkeys([*whole.unavailable, *notes])))

    def _alone(self, own: JobSnapshot) -> JobSnapshot:
        """``own`` with the command that would show the other hosts, too, where there are some."""
        from hangdoc.capture.other_hosts import with_way_to_the_others

        pid = next((target.pid for target in self._standing.targets if target.pid is not None), None)
        return own if pid is None or self._lacking_since is None else with_way_to_the_others(own, pid)

    def _tell_that_alone(self, view: View) -> None:
        """Say once why this watch judges by what it sees itself."""
        if self._lacking_since is None or self._options.meet == "off":
            return
        here = name_ranks(self._standing.ranks)
        text = f"this report is of {here} alone: {_why_alone(view) or 'no other watch was met'}"
        if text != self._said:
            self._said = text
            self._say(text)


def _is_of(view: View, number: int) -> bool:
    return isinstance(view, LeadView) and view.round >= number


def _all_answered(view: View, number: int) -> bool:
    """True if nobody is to be waited for in that round of a lead."""
    if not isinstance(view, LeadView):
        return True
    if view.round < number:
        return False
    now = time.monotonic()
    awaited = {seat.beat.member for seat in view.fitting() if not seat.silent(now) and not seat.beat.left}
    return awaited.intersection(view.asked) <= view.answers.keys()


def _why_alone(view: View) -> str:
    """Why a watch judges by what it sees itself; '' where there is no reason."""
    if isinstance(view, LeadView):
        return "no other hangdoc watch of this job has come"
    if isinstance(view, AloneView):
        return f"the meeting of the watches failed ({view.why})" if view.lost else view.why
    if view.silent:
        return f"nothing is heard of the watch on {view.host}, which leads"
    if view.refused:
        return f"the watch on {view.host}, which leads, says that these ranks do not fit its job"
    return "the lead does not ask"


def _our_fault(error: Exception) -> Unavailable:
    return Unavailable(HOSTS, f"hangdoc failed to join what the hosts show: {error!r}"[:300])
