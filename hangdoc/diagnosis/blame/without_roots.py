"""The deciders of a job in which no rank waits for one that is elsewhere, in the order in which they are asked."""

from __future__ import annotations

from hangdoc.diagnosis.blame.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.blame.divergences import compare_places
from hangdoc.diagnosis.blame.how_sure import (
    children_work,
    held_by_debugger,
    how_sure_of_the_end,
    nobody_acts,
    polls,
    seen_states,
)
from hangdoc.diagnosis.blame.inquiry import Inquiry
from hangdoc.diagnosis.blame.meeting_places import meeting_places, shared_rank
from hangdoc.diagnosis.blame.mixed_threads import MixedThreads, mixed_threads
from hangdoc.diagnosis.blame.odd_by_lines import left_out_by_lines
from hangdoc.diagnosis.blame.odd_by_value import OutOfStep, odd_by_value
from hangdoc.diagnosis.blame.odd_past import OddPast, odd_past
from hangdoc.diagnosis.blame.unmade_file import UnmadeFile, file_that_all_await
from hangdoc.diagnosis.blame.went_past import WentPast, went_past
from hangdoc.diagnosis.explanation import (
    AllArrived,
    Blame,
    Diverged,
    Gone,
    Nothing,
    OutsideWait,
    SeparateMeetings,
    SharedRank,
    UnseenMessages,
)
from hangdoc.diagnosis.frames.stacks import Site, lines_of, site_of
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.endings import ended_well, is_echo
from hangdoc.diagnosis.state.wait_graph import IMMOVABLE
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence, WaitReason
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.model.wording import ranks_text


def threads_on_one_group(inquiry: Inquiry) -> Blame[MixedThreads] | None:
    """Threads that share a group, by their stacks alone. Before ``all_arrived``, which sees the main threads only."""
    return mixed_threads(inquiry.case)


def other_way_before(inquiry: Inquiry) -> Blame[Diverged] | Blame[OddPast] | None:
    """All ranks are in the same call, and few came to it by other lines than the many, or one alone went another way
    before. Before ``all_arrived``, which knows of no past: there, calls of one helper match, whoever calls it."""
    case = inquiry.case
    waiting = all(a.kind == ActivityKind.IN_COLLECTIVE and not a.moving for a in case.activities.values())
    if case.programs or case.hidden or case.streams or not waiting:
        return None
    found = compare_places(case)
    return found if found is not None and 2 * len(found.culprits) < len(case.activities) else odd_past(case)


def all_arrived(inquiry: Inquiry) -> Blame[AllArrived] | None:
    """All ranks are in the same call. From here on the graph is empty: no rank waits for one that is elsewhere."""
    case = inquiry.case
    if not any(a.kind == ActivityKind.IN_COLLECTIVE for a in case.activities.values()):
        return None
    if not case.programs:
        unnamed = all(a.reason == WaitReason.UNNAMED for a in case.activities.values())
        where = "all wait for calls that stacks do not name" if unnamed else "all are in the same call"
        return Blame(AllArrived(), sure=f"{where}; no source shows where they diverged")
    return Blame(AllArrived(), confidence=Confidence.LIKELY, sure="every rank has entered the same call")


def ended_ranks(inquiry: Inquiry) -> Blame[Gone | OutsideWait] | None:
    """Some ranks have ended, and nothing shows that the others wait for them."""
    case = inquiry.case
    left = tuple(sorted(set(case.activities) - case.ended))
    if not case.ended or not left:
        return None
    if all(waits_for_a_key(case.activities[rank]) for rank in left):
        sure = "the others wait for a store key; no source shows which rank should have set it"
        return Blame(Gone(), tuple(sorted(case.ended)), (left,), proved=True, sure=sure)
    if len(case.ended) < len(left) and all(polls(case, rank) for rank in left):
        sure = "the others poll for what another rank was to do; no source shows which one"
        return Blame(Gone(), tuple(sorted(case.ended)), (left,), sure=sure)
    failed = tuple(sorted(rank for rank in case.ended if _failed(case.ranks[rank])))
    if failed and not any(case.activities[rank].moving for rank in left):
        sure = f"{seen_states(case, failed)}; the others wait, and no source shows for whom"
        proved = nobody_acts(case, left) and not any(children_work(case, rank) for rank in left)
        return Blame(Gone(), failed, proved=proved, confidence=Confidence.LIKELY, sure=sure)
    return Blame(OutsideWait(), left, confidence=Confidence.LIKELY, sure="the other ranks have ended")


def _failed(rank: RankSnapshot) -> bool:
    """True if an exception of its own, a status or a signal ended it."""
    end = rank.exit
    return end is not None and not ended_well(rank) and not is_echo(end)


def keys_of_all(inquiry: Inquiry) -> Blame[OutsideWait] | Blame[WentPast] | Blame[OutOfStep] | None:
    """Every rank waits for a store key of the user's own. After ended and unseen ranks, which may have had to set it;
    before the meeting places, which only tell apart ranks that have not joined."""
    activities = inquiry.case.activities
    if not activities or not all(waits_for_a_key(activity) for activity in activities.values()):
        return None
    if (left_out := went_past(inquiry.case)) is not None:
        return left_out
    sure = "every rank waits for a store key, so none of them is on its way to set one"
    places: dict[Site, list[int]] = {}
    for rank, activity in sorted(activities.items()):
        places.setdefault(lines_of(site_of(activity.stack)), []).append(rank)
    few, *rest = sorted(map(tuple, places.values()), key=len)
    if len(rest) == 1 and len(few) < len(rest[0]):
        return Blame(OutsideWait(), few, (rest[0],), sure=f"{sure}; {ranks_text(few)} at another line than the others")
    if (other := odd_by_value(inquiry.case)) is not None:
        return other
    return Blame(OutsideWait(), tuple(sorted(activities)), confidence=Confidence.LIKELY, sure=sure)


def polling_ranks(
    inquiry: Inquiry,
) -> Blame[OutsideWait] | Blame[UnmadeFile] | Blame[WentPast] | Blame[OutOfStep] | None:
    """Every rank polls at one line for what none of them is on its way to do. After ended ranks, which may have had to
    do it."""
    case = inquiry.case
    if (awaited := file_that_all_await(case)) is not None:
        return awaited
    if (left_out := went_past(case)) is not None:
        return left_out
    lines = {(a.where.file, a.where.line) if a.where is not None else None for a in case.activities.values()}
    if len(case.activities) < 2 or len(lines) != 1 or not all(polls(case, rank) for rank in case.activities):
        return None
    if (other := odd_by_value(case)) is not None:
        return other
    if (odd := left_out_by_lines(case, case.activities)) is not None:
        sure = f"every rank polls for it, and rank {odd} alone has not run what all others have"
        return Blame(OutsideWait(), (odd,), (tuple(r for r in sorted(case.activities) if r != odd),), sure=sure)
    sure = "every rank polls for it, and no source shows which rank was to do it"
    return Blame(OutsideWait(), tuple(sorted(case.activities)), sure=sure)


def separate_meetings(inquiry: Inquiry) -> Blame[SeparateMeetings] | None:
    """Ranks that wait for the others at different addresses. After ended ranks, which need not join."""
    places = meeting_places(inquiry.case)
    sides = sorted(places.values(), key=lambda ranks: (len(ranks), ranks[0] == 0))
    if len(sides) < 2:
        return None
    odd = tuple(sorted(rank for ranks in sides[:-1] for rank in ranks))
    tie = len(sides[0]) == len(sides[-1])
    return Blame(
        SeparateMeetings(places),
        odd,
        (tuple(sides[-1]),) if tie else (),
        proved=True,
        confidence=Confidence.POSSIBLE if tie else Confidence.LIKELY,
        sure="the address that each rank waits at",
    )


def one_rank_twice(inquiry: Inquiry) -> Blame[SharedRank] | None:
    """Processes that join as one rank: those that were started as another. After ended ranks, which do not join."""
    found = shared_rank(inquiry.case)
    if found is None:
        return None
    sure = "what each process gave to init_process_group(), in its frame"
    if found.odd:
        return Blame(found, found.odd, proved=True, confidence=Confidence.CERTAIN, sure=sure)
    first, *rest = (rank for ranks in found.twice.values() for rank in ranks)
    return Blame(found, (first,), tuple((rank,) for rank in rest), proved=True, sure=sure)


def gone_ranks(inquiry: Inquiry) -> Blame[Gone] | None:
    """Ranks that have ended or are stopped, for which no rank waits yet."""
    case = inquiry.case
    gone = tuple(sorted(r for r, a in case.activities.items() if a.kind in IMMOVABLE))
    if not gone:
        return None
    return Blame(
        Gone(),
        gone,
        proved=not held_by_debugger(case, gone),
        confidence=how_sure_of_the_end(case, gone),
        sure=seen_states(case, gone),
    )


def unseen_messages(inquiry: Inquiry) -> Blame[UnseenMessages] | None:
    """All ranks wait for messages, and no source shows their peers."""
    activities = inquiry.case.activities.values()
    if not activities or any(a.kind not in MESSAGES or a.moving for a in activities):
        return None
    return Blame(UnseenMessages(), proved=True, sure="which rank each message is for, or from, could not be seen")


def asking_ranks(inquiry: Inquiry) -> Blame[OutsideWait] | None:
    """Ranks that wait for a person, for which no rank waits yet."""
    case = inquiry.case
    asking = tuple(r for r in sorted(case.activities) if waits_for_a_person(case, r) or cannot_be_answered(case, r))
    if not asking:
        return None
    return Blame(OutsideWait(), asking, confidence=Confidence.LIKELY, sure="no other rank was seen to wait")


def nothing(_: Inquiry) -> Blame[Nothing]:
    """Last: no rank waits for another."""
    return Blame(Nothing(), confidence=Confidence.LIKELY, sure="no rank was seen to wait for another")
