"""What each host has handed over, as a part of the whole job; and why a host has handed over nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hangdoc.errors import HangdocError
from hangdoc.model.clocks import taken_with
from hangdoc.model.codec import Allowance
from hangdoc.model.same_job import HOSTS, Part
from hangdoc.model.snapshot import JobSnapshot, Unavailable
from hangdoc.model.wording import name_ranks
from hangdoc.sidecar.meeting.lead import LeadView, Seat
from hangdoc.sidecar.meeting.wire import unpacked


def parts_of(
    own: JobSnapshot,
    view: LeadView,
    answers: Mapping[str, bytes | str],
    shown: Mapping[str, JobSnapshot | bytes | str],
    room: Allowance,
    identity: str,
) -> tuple[list[Part], list[Unavailable], bool]:
    """(the other hosts' snapshots, why others show nothing, True if clocks are still to be put right).

    ``shown``: member → its snapshot, packed or whole, or why there is none. ``identity``: of this host, whose other
    watches need not answer. The clocks of whole snapshots have been put right already.
    """
    others: list[Part] = []
    notes: list[Unavailable] = []
    answering = {identity}
    beside = ranks_beside(view)
    clocks = False
    for seat in view.seats:
        found = shown.get(seat.beat.member)
        try:
            if isinstance(found, bytes):
                found = unpacked(found, seat.beat.host, beside[seat.beat.member], room)
                if seat.beat.member in answers:  # taken because we asked, just now
                    found = taken_with(found, own)
                clocks = True
        except HangdocError as error:
            found = error.what
        if isinstance(found, JobSnapshot):
            others.append(Part(f"host {seat.beat.host}", found))
            answering.add(seat.beat.identity)
            continue
        asked = seat.beat.identity not in answering and seat.beat.member in view.asked
        notes += _why_absent(seat, found or "", asked=asked)
    return others, notes, clocks


def ranks_beside(view: LeadView) -> dict[str, frozenset[int]]:
    """Member → the ranks that it may speak for: its own and those of other watches on its host."""
    on_host: dict[str, set[int]] = {}
    for seat in view.fitting():
        on_host.setdefault(seat.beat.identity or seat.beat.member, set()).update(seat.beat.ranks)
    frozen = {where: frozenset(ranks) for where, ranks in on_host.items()}
    return {seat.beat.member: frozen[seat.beat.identity or seat.beat.member] for seat in view.fitting()}


def _why_absent(seat: Seat, unreadable: str, *, asked: bool) -> list[Unavailable]:
    """Why a host shows nothing; empty where nothing was to be expected. ``unreadable``: what its answer lacks."""
    where, now = f"host {seat.beat.host} ({name_ranks(seat.beat.ranks)})", time.monotonic()
    if seat.refused:
        return [Unavailable(HOSTS, f"the watch on {seat.beat.host} does not fit this job: {seat.refused}")]
    if unreadable:
        return [Unavailable(HOSTS, f"{where} sent no snapshot that can be read: {unreadable}")]
    if seat.silent(now):
        since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - (now - seat.heard_at)))
        return [Unavailable(HOSTS, f"{where} has been silent since {since}", "look at its watch there")]
    if seat.beat.left:
        return [Unavailable(HOSTS, f"the command on {where} has ended")]
    return [Unavailable(HOSTS, f"{where} did not answer in time", "look at its watch there")] if asked else []
