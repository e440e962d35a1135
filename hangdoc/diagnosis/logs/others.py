"""The other readings: nobody left the order, a message without a partner, a rendezvous, ends without a hang, counts of
RAS, and, where nothing else can be said, who waits where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangdoc.diagnosis.logs.known import Known, Meeting
from hangdoc.diagnosis.logs.reading import (
    NO_CAUSE,
    Reading,
    Strength,
    at_line,
    last_words,
    name_call,
    name_group,
    name_meeting,
    side,
    since,
    user_frame,
)
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.logged import Ended, Raised
from hangdoc.model.message import Does, Message, Place, Ranks, joined, sentence
from hangdoc.model.wording import name_ranks

_SIGABRT, _SIGKILL, _SIGTERM = 6, 9, 15
_MAY_HAVE_WAITED = "without its own output it may as well have given up a wait for another rank"
_KILLED = "a lone kill comes from outside: the kernel (out of memory), a scheduler, a person"


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
                [
                    Does(waiting, "waits", "wait"),
                    f" in {name_meeting(meeting)}",
                    at_line(meeting.waiting.values()),
                    since(meeting),
                ],
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


def rendezvous(known: Known) -> Iterator[Reading]:
    """Ranks that waited for the rendezvous, or for a communicator's id, in vain."""
    if any(meeting.key.numbered for meeting in known.meetings):
        return
    by_kind = {
        kind: [s for s in known.logged.set_ups if s.kind == kind] for kind in ("unique id", "clients", "connect")
    }
    ids = by_kind["unique id"]
    if ids:
        waiting = tuple(sorted({each.joined for each in ids if each.joined >= 0}))
        first = int(ids[0].target) if ids[0].target.isdigit() else 0
        named = (first,) if first not in waiting else ()
        if named:
            yield Reading(
                Strength.SET_UP,
                Outcome.HANG,
                sentence(
                    [Ranks(named), " has not come to the first call of the group, whose ncclUniqueId it provides"],
                    [Does(waiting, "waits", "wait"), " for it"],
                ),
                NO_CAUSE,
                named,
                Confidence.LIKELY,
                why=last_words(known, named),
                fix=["look at what ", Ranks(named), " does before its first collective"],
                sure="the others' errors name it; the numbers are those of the group",
                sources=tuple(each.place for each in ids[:2]),
            )
    if by_kind["clients"]:
        said = max(by_kind["clients"], key=lambda each: each.joined)
        seen = {each.rank for each in by_kind["clients"] if each.rank is not None}
        absent = said.expected - said.joined
        elsewhere = tuple(sorted({e.rank for e in by_kind["connect"] if e.rank is not None} - seen))
        told = seen | set(known.streams) | {each.rank for each in known.logged.raised}
        gone = elsewhere or tuple(r for r in known.ranks if r not in told)
        yield Reading(
            Strength.SET_UP,
            Outcome.HANG,
            sentence(f"{said.joined} of {said.expected} ranks came to the rendezvous, {absent} did not"),
            "HD302" if elsewhere and len(gone) == absent else "HD301",
            gone if len(gone) == absent else (),
            Confidence.LIKELY,
            why=[Does(gone, "tried", "tried"), f" to connect to {by_kind['connect'][0].target} in vain"]
            if elsewhere and len(gone) == absent
            else [Ranks(gone), " alone", " is" if len(gone) == 1 else " are", " in no line of the logs"]
            if len(gone) == absent
            else "the log does not say which",
            fix="look at whether these ranks were started, and whether they reach the master's address and port",
            sure="the rendezvous counts them",
            sources=(said.place,),
        )
    if by_kind["connect"]:
        said = by_kind["connect"][0]
        ranks = tuple(sorted({each.rank for each in by_kind["connect"] if each.rank is not None}))
        yield Reading(
            Strength.SET_UP,
            Outcome.HANG,
            sentence(
                [Does(ranks, "could not connect", "could not connect"), f" to the rendezvous at {said.target}"]
                if ranks
                else f"the rendezvous at {said.target} could not be reached"
            ),
            "HD302",
            (),
            Confidence.POSSIBLE,
            why="nobody listened there, or the network let nothing through",
            fix="check MASTER_ADDR and MASTER_PORT, and that rank 0 was running then",
            sure="the error names the address; a log does not show why",
            sources=(said.place,),
        )


def barrier_victims(known: Known) -> Iterator[Reading]:
    """Ranks that came to monitored_barrier and waited there for rank 0."""
    if any(each.place.kind == "monitored_barrier" for each in known.logged.behind):
        return
    sends = [each for each in known.logged.barriers if each.direction == "send" and each.rank is not None]
    if not sends:
        return
    peer = sends[0].peer
    waiting = tuple(sorted({each.rank for each in sends if each.rank is not None}))
    yield Reading(
        Strength.BEHIND,
        Outcome.HANG,
        sentence(
            [f"rank {peer} has not come to monitored_barrier"],
            [Does(waiting, "waits", "wait"), " in it for rank ", str(peer)],
        ),
        NO_CAUSE,
        (peer,),
        Confidence.LIKELY,
        why=joined("their sends to it timed out, so it was not in the barrier", last_words(known, (peer,))),
        fix=["look at what ", Ranks((peer,)), " does while the others are in the barrier"],
        sure="the others' own errors show it",
        sources=tuple(each.place for each in sends[:2]),
    )


def ras(known: Known) -> Iterator[Reading]:
    """Ranks behind by NCCL's own counts. RAS lists the fewer members, whether they are ahead or behind."""
    status = known.job.nccl
    for communicator in status.communicators if status is not None else ():
        silent = tuple(sorted(each.number for each in communicator.silent))
        if silent:
            yield Reading(
                Strength.BEHIND,
                Outcome.HANG,
                sentence([Does(silent, "does", "do"), " not answer NCCL's own service any more"]),
                NO_CAUSE,
                silent,
                Confidence.LIKELY,
                fix=["look at whether the processes of ", Ranks(silent), " still live, and at `dmesg` of their hosts"],
                sure="NCCL's service says so; its ranks are those of one communicator",
            )
            continue
        for op in dict.fromkeys(each.operation for each in communicator.counts):
            counts = sorted((c for c in communicator.counts if c.operation == op), key=lambda c: c.count)
            if len(counts) < 2:
                continue
            low, high = counts[0], counts[-1]
            ahead = [m.number for m in high.members]
            behind = [m.number for m in low.members]
            every = set(range(communicator.size)) if communicator.size else set()
            if (
                not behind
                and len(counts) == 2
                and len(ahead) == high.how_many
                and len(every) == low.how_many + high.how_many
            ):
                behind = sorted(every - set(ahead))
            few = low.how_many < high.how_many and len(behind) == low.how_many
            sides = tuple(tuple(sorted(side)) for side in (behind, ahead) if side)
            yield Reading(
                Strength.BEHIND if few else Strength.FACTS,
                Outcome.HANG,
                sentence(
                    f"{low.how_many} ranks have launched {op or 'their calls'} up to #{low.count}, "
                    f"{high.how_many} up to #{high.count}",
                    [Does(tuple(behind), "is", "are"), " behind"] if behind else "",
                ),
                NO_CAUSE,
                tuple(behind) if few else (),
                Confidence.LIKELY if few else Confidence.POSSIBLE,
                () if few else sides,
                why="" if few else "the fewer may have made a call too many, or the others may have left one out",
                fix="compare the stacks of the two sides (`py-spy dump`, or `hangdoc attach` while it still runs)",
                sure="NCCL's own counts show who is behind; whose fault that is, they do not",
            )


def failures(known: Known) -> Iterator[Reading]:
    """A rank that failed by itself, or that was killed: no call was overdue (HD401, HD402)."""
    if any(meeting.key.numbered for meeting in known.meetings):
        return
    own = [each for each in known.failures if each.rank is not None and not known.went_on(each)]
    if own:
        yield _exception(known, own)
        return
    first = _first_ends(known)
    if first:
        yield _end(known, first)


def _exception(known: Known, own: list[Raised]) -> Reading:
    ended = {rank for rank, end in known.ends.items() if end.status and not end.asked}
    culprits = [each for each in own if each.rank in ended] or own
    times = [each.at for each in culprits if each.at]
    first = min(culprits, key=lambda each: (each.at or min(times, default=0.0), each.place))
    alike = {each.rank for each in culprits if each.error == first.error and each.rank is not None}
    ranks = tuple(
        sorted(alike if len(alike) < max(len(known.ranks), 2) or len(culprits) == len(alike) else {first.rank or 0})
    )
    frame = user_frame(first.stack)
    where: Message = [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
    empty = {rank for call in known.logged.calls if call.empty for rank in call.ranks}
    return Reading(
        Strength.FAILURE,
        Outcome.CRASHED,
        sentence([Does(ranks, "failed", "failed"), f" with {first.error}", where]),
        "HD401",
        ranks,
        Confidence.CERTAIN if set(ranks) <= ended and len(ended) == len(ranks) else Confidence.LIKELY,
        why=joined(
            "the others were ended by the launcher" if any(end.asked for end in known.ends.values()) else "",
            [Does(tuple(sorted(empty)), "made", "made"), " no call at all when the others compared theirs"]
            if empty
            else "",
        ),
        fix="mend what raised it; what the other ranks print afterwards follows from it",
        sure="its traceback is in the log" + (", and its launcher saw it end by itself" if set(ranks) <= ended else ""),
        sides=(side(ranks, first.error, first.stack),),
        sources=(first.place,),
    )


def _first_ends(known: Known) -> list[tuple[int, Ended]]:
    """The ends that came first, of those that nobody asked for and that are no abort after another's end."""
    ends = known.ends.items()
    own = [(r, end) for r, end in ends if not end.asked and (end.signal or end.status) and r not in known.victims]
    # Who ends a job from outside sends SIGTERM to all, and torch aborts every rank of one that hangs: several of these
    # tell of none, in whatever order they came.
    alike = Counter(end.signal for _, end in own)
    own = [(r, end) for r, end in own if end.signal not in (_SIGTERM, _SIGABRT) or alike[end.signal] == 1]
    everyone = len(own) > 1 and {r for r, _ in own} == set(known.ranks) and len(alike) == 1
    if not own or (everyone and own[0][1].signal):
        return []  # all were killed alike: from outside
    timed = [end.at for _, end in own if end.at]
    earliest = min(timed, default=0.0)
    first = [(rank, end) for rank, end in own if not end.at or end.at <= earliest]
    return [each for each in first if each[1].signal != _SIGABRT] or first


def _end(known: Known, first: list[tuple[int, Ended]]) -> Reading:
    ranks = tuple(sorted(rank for rank, _ in first))
    end = first[0][1]
    how = f"by signal {end.signal}" if end.signal else f"with status {end.status}"
    killed = end.signal is not None
    told = {each.rank for each in known.logged.raised} | set(known.streams)
    silent = not killed and not told & set(ranks)
    others = tuple(sorted(rank for rank, each in known.ends.items() if each.asked))
    return Reading(
        Strength.ENDED,
        Outcome.CRASHED,
        sentence(
            [Does(ranks, "ended", "ended"), f" {how}", f" on {end.host}" if end.host else ""],
            [Does(others, "was", "were"), " ended by the launcher afterwards"] if others else "",
        ),
        "HD402" if killed else "HD401",
        ranks,
        Confidence.POSSIBLE if silent else Confidence.LIKELY,
        why=_KILLED if end.signal == _SIGKILL else _MAY_HAVE_WAITED if silent else "",
        fix="look at `dmesg` and the scheduler's log of that host at that time" if end.signal == _SIGKILL
        else ["look at the output of ", Ranks(ranks), " before its end" if len(ranks) == 1 else " before their end"],
        sure="the launcher's own times, to a second" + ("; they ended in the same one" if len(ranks) > 1 else ""),
        sources=tuple(each.place for _, each in first[:2]),
    )  # fmt: skip


def facts_only(known: Known) -> Iterator[Reading]:
    """Who waits where, when nothing says who did not come."""
    if known.meetings:
        meeting = known.meetings[0]
        waiting = tuple(sorted(meeting.waiting))
        rest = [f"{name_ranks(m.waiting)} in {name_meeting(m)}" for m in known.meetings[1:4]]
        rooted = _rooted(known)
        yield Reading(
            Strength.FACTS,
            Outcome.HANG,
            sentence(
                [
                    Does(waiting, "waits", "wait"),
                    f" in {name_meeting(meeting)}",
                    at_line(meeting.waiting.values()),
                    since(meeting),
                ],
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
