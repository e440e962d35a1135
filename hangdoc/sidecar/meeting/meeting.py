"""A watch's part in its job's meeting: a thread takes the steps, so that no network delays the watch."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.capture.find.job_store import job_name
from hangdoc.capture.find.target import host_identity, host_name
from hangdoc.sidecar.meeting.lead import Lead, LeadView
from hangdoc.sidecar.meeting.member import Member, MemberView
from hangdoc.sidecar.meeting.place import NoPlaceError, Place, announce, called_at_store, open_place
from hangdoc.sidecar.meeting.records import CALM_SECONDS, Verdict
from hangdoc.sidecar.meeting.slurm import step_of
from hangdoc.sidecar.meeting.wishes import CALM_LEAD_SECONDS, Standing, Wishes

_BUSY_SECONDS = 0.25
"""Between two steps while a stall is looked at."""
_STILL_SECONDS = 1.0
"""Between two steps while the ranks stand still, and of a lead. Judgement."""
_FIRST_TRY_SECONDS, _LAST_TRY_SECONDS = 1.0, 30.0
_MORE = 1.3
"""By this factor each pause between two tries is longer than the one before. One try costs 10 ms of CPU time."""
_LATE_SECONDS = 10.0
"""For so long ranks may take to come to their store before the watches of a Slurm step do without it. Judgement."""
_LOOK_BACK_SECONDS = 30.0
"""Between two looks of a lead whom nobody has joined, whether another watch has called a meeting. Judgement."""
_MOST_LOSSES = 5
"""Of meetings in a row, after which this watch goes on alone: something is wrong for good. Judgement."""
_LASTING_SECONDS = 60.0
"""A meeting that lasted so long did not fail at once: its lead has gone, or leads no more. Judgement."""


@dataclass(frozen=True, slots=True)
class AloneView:
    """The watch has met nobody, or nobody any more. ``why``: '' as long as there was no reason to meet."""

    why: str = ""
    lost: bool = False
    """There was a meeting before."""


View = AloneView | LeadView | MemberView


class Meeting:
    """What the watch's thread uses; none of it waits for the network, unless it says so."""

    def __init__(self, meet: str) -> None:
        self._meet = meet
        self._changed = threading.Condition()
        self._wishes = Wishes()
        self._view: View = AloneView()
        self.verdict: Verdict | None = None
        """The latest that a lead has given; stays when the meeting ends."""
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._closing = False
        self._step = step_of(os.environ, host_name())
        self.late_by = _LATE_SECONDS if self._step is not None else 0.0
        """Seconds by which the others may come later than usual."""

    @property
    def view(self) -> View:
        """What is known of the others now."""
        with self._changed:
            return self._view

    def tell(self, standing: Standing) -> None:
        """How our own ranks are."""
        self._wish(standing=standing)

    def begin(self) -> None:
        """There are ranks elsewhere: begin to look for their watches."""
        if self._thread is None and self._meet != "off":
            self._began = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="hangdoc-meeting", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: then it stays alone
                self._thread.start()

    def ask(self, members: tuple[str, ...], pieces: Mapping[str, tuple[str, ...]] | None = None) -> int:
        """Of a lead: ask these for their snapshots, or for ``pieces`` each; the number of the round."""
        with self._changed:
            number = self._wishes.round + 1
            self._wishes = replace(self._wishes, round=number, asked=members, pieces=pieces)
            self._changed.notify_all()
            return number

    def publish(self, verdict: Verdict) -> None:
        """Of a lead: tell everybody."""
        self._wish(verdict=verdict)

    def answer(self, number: int, snapshot: bytes, known: Callable[[Sequence[str]], bytes] | None = None) -> None:
        """Of a member: hand over what the lead asked for. ``known`` gives what a digest has left out."""
        self._wish(answer=(number, snapshot), known=known)

    def wait_for(self, enough: Callable[[View], bool], seconds: float) -> View:
        """Wait until the view is ``enough``, at most so long; the view."""
        with self._changed:
            self._changed.wait_for(lambda: enough(self._view), seconds)
            return self._view

    def leave(self, end: bytes, known: Callable[[Sequence[str]], bytes] | None = None) -> None:
        """The command has ended; ``end``: the packed snapshot of how, empty if nothing failed. ``known``: as above."""
        self._wish(end=end, known=known)

    def close(self, seconds: float = 1.0) -> None:
        """Let go of the others. Waits at most so long."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)

    def _wish(self, **changes: Any) -> None:
        with self._changed:
            self._wishes = replace(self._wishes, **changes)
            self._changed.notify_all()

    def _show(self, view: View) -> None:
        with self._changed:
            self._view = view
            if isinstance(view, MemberView) and view.verdict is not None:
                self.verdict = view.verdict
            self._changed.notify_all()

    def _pause(self, seconds: float, seen: Wishes) -> None:
        """Wait for something to do: a wish, or a change of whether the ranks move."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or _pressing(seen, self._wishes), seconds)

    def _run(self) -> None:
        try:
            losses = 0
            pause = _FIRST_TRY_SECONDS
            while not self._closing and losses < _MOST_LOSSES:
                began = time.monotonic()
                try:  # one failed meeting must not prevent the next
                    self._meet_once()
                    pause = _FIRST_TRY_SECONDS
                except NoPlaceError as error:
                    self._show(AloneView(str(error), self._was_met()))
                    self._sleep(pause)
                    pause = min(_MORE * pause, _LAST_TRY_SECONDS)
                except (OSError, ValueError) as error:
                    losses = 1 if time.monotonic() - began > _LASTING_SECONDS else losses + 1
                    self._show(AloneView(str(error) or type(error).__name__, lost=True))
                    self._sleep(_FIRST_TRY_SECONDS)
        except Exception as error:  # a failure in here must not cost the watch
            self._show(AloneView(f"{type(error).__name__}: {error}", lost=True))

    def _was_met(self) -> bool:
        view = self.view
        return not isinstance(view, AloneView) or view.lost

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _meet_once(self) -> None:
        """Find the others and stay with them until this watch ends, or changes its part. Raises as ``open_place``."""
        wishes = self._wishes
        late = time.monotonic() - self._began >= _LATE_SECONDS
        called = job_name(wishes.standing.targets)  # ranks that come before the place is open may call it otherwise
        place = open_place(
            self._meet,
            wishes.standing,
            leads=0 in wishes.standing.ranks,
            step=self._step,
            late=late,
        )
        try:
            host, identity = host_name(), host_identity()
            me = f"{_plain(host)[:40]}-{secrets.token_hex(6)}"
            wishes = self._wishes
            role = (
                Lead(place.board, me, host, since=wishes.round)
                if place.leads
                else Member(place.board, me, host, identity, before=wishes.answer)
            )
            self._stay(place, role, called)
        finally:
            place.close()

    # Its branches are the events that end a meeting or make it be announced again.
    def _stay(self, place: Place, role: Lead | Member, announced: str) -> None:
        look_back = time.monotonic() + _LOOK_BACK_SECONDS
        while True:
            wishes = self._wishes
            ranks = wishes.standing.ranks
            if ranks and not place.by_slurm and (0 in ranks) != place.leads:
                return  # after a restart rank 0 is elsewhere, or has come here
            view = role.step(time.monotonic(), wishes)
            self._show(view)
            if self._closing:
                return
            if place.note and ranks and job_name(wishes.standing.targets) != announced:
                with contextlib.suppress(NoPlaceError, OSError, ValueError):
                    announce(place, wishes.standing)
                    announced = job_name(wishes.standing.targets)
            if place.by_slurm and isinstance(view, LeadView) and not view.fitting() and time.monotonic() > look_back:
                if called_at_store(wishes.standing):
                    return  # the others meet there
                look_back = time.monotonic() + _LOOK_BACK_SECONDS
            self._pause(_period(view, wishes), wishes)


def _period(view: View, wishes: Wishes) -> float:
    if isinstance(view, LeadView):
        if len(view.answers) < len(wishes.asked) and not _concluded(wishes):
            return _BUSY_SECONDS
        return _STILL_SECONDS if wishes.standing.still is not None else CALM_LEAD_SECONDS
    if wishes.standing.still is None:
        return CALM_SECONDS
    return view.pause or _BUSY_SECONDS if isinstance(view, MemberView) and _awaits(view) else _STILL_SECONDS


def _concluded(wishes: Wishes) -> bool:
    return wishes.verdict is not None and wishes.verdict.round == wishes.round


def _awaits(view: MemberView) -> bool:
    return view.asked > (view.verdict.round if view.verdict is not None else 0)


def _pressing(seen: Wishes, now: Wishes) -> bool:
    """True if something has changed that others must hear of at once."""
    return (
        (seen.standing.still is None) != (now.standing.still is None)
        or seen.standing.ranks != now.standing.ranks
        or (seen.round, seen.answer, seen.end, seen.verdict) != (now.round, now.answer, now.end, now.verdict)
    )


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in name if letter.isascii())
