"""The other readings: nobody left the order, a message without a partner, and, where nothing else can be said, who
waits where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.meetings import Meeting
from hangdoc.diagnosis.logs.reading import (
    Reading,
    Strength,
    at_line,
    name_call,
    name_group,
    name_meeting,
    since,
    user_frame,
    waiters,
)
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.message import Does, Message, Place, Ranks, joined, sentence
from hangdoc.model.wording import name_ranks


def all_arrived(known: Known) -> Iterator[Reading]:
    """A call that every member has issued: nobody left the order of its group up to there (HD602)."""
    for meeting in known.meetings:
        if known.is_not_compared(meeting.key.group) or not meeting.key.numbered:
            continue
        seen_all = meeting.has_all or (
            not meeting.size and not known.folded and set(meeting.arrived) >= set(known.ranks) and len(known.ranks) > 1
        )
        if not seen_all:
            continue
        every = tuple(sorted(meeting.arrived))
        first = (
            all(far.completed <= 0 for far in known.enqueued(meeting.key.group).values()) and meeting.key.sequence <= 1
        )
        order = _started_out_of_order(known, meeting)
        yield Reading(
            Strength.ALL_ARRIVED,
            Outcome.HANG,
            sentence(
                [f"All {len(every)} ranks of {name_group(meeting.key.group) or 'the group'} have issued "
                 f"{name_call(meeting.op, meeting.key.sequence)}", at_line(meeting.waiting.values()), since(meeting)],
                "no rank left the order of calls",
            ),
            "HD602",
            (),
            Confidence.CERTAIN if meeting.has_all and not known.several_runs else Confidence.LIKELY,
            why=joined(
                "it is the group's first call: its connections were never made" if first else "",
                order,
                "errors that follow (“inconsistent params” and the like) come from buffers that it never filled",
            ),
            fix=_SET_UP_FIX if first else _STREAMS_FIX if order else _DEVICE_FIX,
            sure="every member's own watchdog or count shows it" if meeting.has_all
            else "all ranks in the log have issued it; the log does not say how many there are",
            meeting=meeting,
            sources=tuple(call.place for call in list(meeting.waiting.values())[:2]),
        )  # fmt: skip


_SET_UP_FIX = (
    "check what the first call needs: the network interface (NCCL_SOCKET_IFNAME), P2P between the devices "
    "(NCCL_P2P_DISABLE=1 to try), one device for each rank (torch.cuda.set_device), and run once with NCCL_DEBUG=INFO"
)
_DEVICE_FIX = (
    "look at the devices and the network, not at the order of calls: `dmesg`, `nvidia-smi`, the network cards' "
    "counters, and once with NCCL_DEBUG=INFO"
)
_STREAMS_FIX = "look at the streams: give calls that run side by side an order that is the same on all ranks"


def _started_out_of_order(known: Known, meeting: Meeting) -> Message:
    """That a later call was started before this one: streams that block each other on the devices."""
    later = {
        each.rank: each.started
        for each in known.logged.progress
        if each.group == meeting.key.group
        and each.started > meeting.key.sequence > each.completed
        and each.rank is not None
    }
    if not later:
        return ""
    number = Counter(later.values()).most_common(1)[0][0]
    order = f" #{number} before #{meeting.key.sequence}: "
    return [Does(tuple(sorted(later)), "started", "started"), order, "the calls run on "
            "several streams, and block each other on the devices"]  # fmt: skip


def messages(known: Known) -> Iterator[Reading]:
    """A message that waits for its partner (HD202)."""
    for meeting in known.meetings:
        if meeting.op not in ("SEND", "RECV"):
            continue
        group, _ = known.members(meeting.key.group)
        waiting = tuple(sorted(meeting.waiting))
        peers = tuple(sorted(group - set(waiting))) if len(group) == 2 and len(waiting) == 1 else ()
        did = "sent" if meeting.op == "RECV" else "received"
        yield Reading(
            Strength.MESSAGE,
            Outcome.HANG,
            sentence(
                waiters(meeting),
                [Ranks(peers), f" has not {did} it"] if peers else "",
            ),
            "HD202",
            peers,
            Confidence.POSSIBLE,
            why="in a server without load this is no fault: its time-out must be longer than it may idle"
            if peers
            else "",
            fix="if a message was due, look at what the other side did instead; if none was, raise the group's timeout",
            sure="a log does not show whether a message was due",
            meeting=meeting,
            sources=tuple(call.place for call in meeting.waiting.values())[:2],
        )


def facts_only(known: Known) -> Iterator[Reading]:
    """Who waits where, when nothing says who did not come."""
    if known.meetings:
        meeting = known.meetings[0]
        rest = [f"{name_ranks(m.waiting)} in {name_meeting(m)}" for m in known.meetings[1:4]]
        rooted = _rooted(known)
        yield Reading(
            Strength.FACTS,
            Outcome.HANG,
            sentence(
                waiters(meeting),
                *rest,
                "the log does not say who did not come",
            ),
            "",
            (),
            Confidence.POSSIBLE,
            why=joined(
                "whoever wrote the log left repeated lines out, so a rank that it does not show is not silent"
                if known.folded
                else "",
                "a member of a call with a root may be done before the others, so unlike numbers prove nothing"
                if rooted
                else "",
            ),
            fix="give the logs of all ranks, or all lines of this one",
            sure="the log shows who waits, not who is missing",
            meeting=meeting,
            sources=tuple(call.place for call in list(meeting.waiting.values())[:2]),
        )
    elif known.overdue or known.logged.overdue:
        call = known.logged.overdue[0]
        who: Message = [Does((call.rank,), "waits", "wait")] if call.rank is not None else "a rank waits"
        yield Reading(
            Strength.FACTS,
            Outcome.HANG,
            sentence(
                [who, f" in {name_call(call.op, call.sequence, call.group)}"], "the log does not say who did not come"
            ),
            sure="the log shows who waits, not who is missing",
            fix="give the logs of all ranks, or all lines of this one",
            sources=(call.place,),
        )
    elif last := [each for each in known.logged.raised if known.is_last(each)]:
        first = next((each for each in last if not each.follows), last[0])
        frame = user_frame(first.stack)
        where: Message = [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
        who = (
            [Does((first.rank,), "failed", "failed")]
            if first.rank is not None
            else "a rank, which the log does not name, failed"
        )
        yield Reading(
            Strength.FACTS,
            Outcome.CRASHED,
            sentence([who, f" with {first.error}", where]),
            sure="its traceback is in the log",
            fix="give the logs of all ranks",
            sources=(first.place,),
        )


def _rooted(known: Known) -> bool:
    return any(m.op in ("BROADCAST", "REDUCE", "SCATTER", "GATHER") for m in known.meetings) and len(known.meetings) > 1
