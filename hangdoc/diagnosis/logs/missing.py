"""Readings of ranks that did not come to a call in which others wait.

A wait-for graph of ranks (Chandy, Misra, Haas 1983): who is overdue in a call waits for every member that has not
issued it. Following the waits across groups ends at ranks that wait for nobody, or in a circle. How sure it is that
such a rank is missing goes by what shows it: its own count, torch's report, its exception, its life without an overdue
call, silence.

Example: ranks 2 to 4 wait in group 7 for rank 5, rank 5 waits in group 8 for them: a circle of two groups (HD107).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum

from hangdoc.diagnosis.components import components
from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.meetings import Meeting, minority
from hangdoc.diagnosis.logs.reading import (
    NO_CAUSE,
    Reading,
    Strength,
    at_line,
    last_words,
    name_call,
    name_meeting,
    side,
    since,
    user_frame,
    waiters,
    where_now,
)
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.logged import Raised
from hangdoc.model.message import Does, Message, Place, Ranks, joined, sentence

_SIGABRT, _SIGKILL = 6, 9
_BARRIER = "monitored_barrier"
_NOBODY = frozenset[int]()


class _Shown(IntEnum):
    """What shows that a rank is missing, the strongest first."""

    FAILED = 1
    ENDED = 2
    STUCK = 3
    COUNTED = 4
    REPORTED = 5
    LIVES = 6
    WORKS = 7
    SILENT = 8


def waits_for(known: Known) -> dict[int, frozenset[int]]:
    """Rank → the ranks that are missing in the calls in which it waits. Ranks of one call share one set.

    A member that is overdue in another call of the same group is not among them: a call with a root ends earlier on
    some.
    """
    graph: dict[int, frozenset[int]] = {}
    overdue: dict[str, set[int | None]] = defaultdict(set)
    for call in known.logged.overdue:
        overdue[call.group].add(call.rank)
    for meeting in known.meetings:
        if known.is_not_compared(meeting.key.group):
            continue
        absent = meeting.missing - overdue[meeting.key.group]
        for rank in meeting.waiting:
            graph[rank] = graph[rank] | absent if rank in graph else absent
    return graph


def closed_circles(graph: Mapping[int, frozenset[int]]) -> set[frozenset[int]]:
    """The sets of ranks that all wait, directly or along others, for each other and for nobody else.

    Example: 0 → 2, 2 → 5, 5 → 2 → {2, 5}.
    """
    # Ranks that wait for the same others are followed once: thousands are in one call.
    follows = {waits: {graph.get(rank, _NOBODY) for rank in waits} for waits in graph.values()}
    closed = (some for some in components(follows) if all(follows.get(each, some) <= some for each in some))
    return {circle for some in closed if len(circle := frozenset[int]().union(*some)) > 1}


def missing(known: Known) -> Iterator[Reading]:
    """Each call whose missing members wait for nobody, and circles of waits."""
    graph = waits_for(known)
    for meeting in known.meetings:
        if known.is_not_compared(meeting.key.group):
            continue
        late = [rank for rank in meeting.missing if rank not in known.overdue and rank not in known.cut_off]
        if late:
            yield from _of_meeting(known, meeting, frozenset(late))
    for circle in closed_circles(graph):
        yield _circle(known, circle)


def _of_meeting(known: Known, meeting: Meeting, late: frozenset[int]) -> Iterator[Reading]:
    shown = {rank: _shown(known, meeting, rank) for rank in late}
    best = min(shown.values())
    named = tuple(sorted(rank for rank, how in shown.items() if how == best))
    if known.folded and best >= _Shown.LIVES:
        return
    waiting = tuple(sorted(meeting.waiting))
    if len(named) > len(waiting) and best not in (_Shown.FAILED, _Shown.ENDED):
        # As few may have made one call too many as many have left one out.
        yield _two_ways(known, meeting, named, waiting)
        return
    if best == _Shown.FAILED:
        yield _failed(known, meeting, named)
    elif best == _Shown.ENDED:
        yield _ended(known, meeting, named)
    elif best in (_Shown.COUNTED, _Shown.REPORTED):
        yield _behind(known, meeting, named, best)
    else:
        yield _not_seen(known, meeting, named, best)


def _shown(known: Known, meeting: Meeting, rank: int) -> _Shown:
    if any(each.rank == rank for each in known.failures):
        return _Shown.FAILED
    if rank in known.ended:
        return _Shown.ENDED
    if rank in known.stuck:
        return _Shown.STUCK
    if known.is_behind(rank, meeting) is not None:
        return _Shown.COUNTED
    if known.reports_of(rank, meeting):
        return _Shown.REPORTED
    end = known.ends.get(rank)
    if rank in known.alive or (end is not None and end.asked):
        return _Shown.LIVES
    return _Shown.WORKS if rank in known.streams else _Shown.SILENT


def _where_others_wait(meeting: Meeting) -> Message:
    """'ALLREDUCE #7 of default_pg at train.py:9, in which ranks 0 and 1 wait since 18:34:12'."""
    ranks = tuple(sorted(meeting.waiting))
    here = at_line(meeting.waiting.values())
    return [name_meeting(meeting), here, ", in which ", Does(ranks, "waits", "wait"), since(meeting).lstrip(",")]


def _behind(known: Known, meeting: Meeting, named: tuple[int, ...], how: _Shown) -> Reading:
    call = f"#{meeting.key.sequence}"
    counts = {rank: far.enqueued for rank in named if (far := known.is_behind(rank, meeting)) is not None}
    if how is _Shown.COUNTED:
        last = sorted(set(counts.values()))
        numbers = " and ".join(f"#{n}" for n in last[:3])
        own = "its last call enqueued is" if len(named) == 1 else "their last calls enqueued are"
        said: Message = [Does(named, "has", "have"), f" not finished issuing it: {own} {numbers}"]
        sure = "the group's own counts show it; why it did not come, a log does not show"
    else:
        kinds = sorted({each.place.kind for rank in named for each in known.reports_of(rank, meeting)})
        said = [Does(named, "has", "have"), f" not joined it, by torch's {' and '.join(kinds)}"]
        sure = f"{' and '.join(kinds)} says so; why it did not come, a log does not show"
    reports = [each for rank in named for each in known.reports_of(rank, meeting)]
    sources = [far.place for rank in named if (far := known.is_behind(rank, meeting)) is not None]
    why = joined(
        f"before {call} or inside its call: torch counts a call only when NCCL's function has returned",
        where_now(known, named),
        last_words(known, named),
    )
    return Reading(
        Strength.BEHIND,
        Outcome.HANG,
        sentence([Does(named, "is", "are"), " behind in ", _where_others_wait(meeting)], said),
        NO_CAUSE,
        named,
        Confidence.CERTAIN if how is _Shown.COUNTED and not known.several_runs else Confidence.LIKELY,
        why=why,
        fix=_look_at(known, named),
        sure=sure,
        meeting=meeting,
        sources=(*sources, *(each.place for each in reports))[:4],
    )


def _not_seen(known: Known, meeting: Meeting, named: tuple[int, ...], how: _Shown) -> Reading:
    fewer = len(named) < len(meeting.waiting)
    # torch's watchdog aborts who waits: a rank that ended so may have told of it in a part of its log that is missing.
    aborted = any(known.ends[rank].signal == _SIGABRT for rank in named if rank in known.ends)
    told = how is _Shown.LIVES or (how is _Shown.WORKS and not aborted)
    likely = fewer and (how is _Shown.STUCK or (known.whole and told))
    if how is _Shown.STUCK:
        said: Message = ["its" if len(named) == 1 else "their", " watchdog thread was stuck before any time-out"]
        sources = tuple(known.stuck[rank].place for rank in named)[:2]
    elif how is _Shown.LIVES:
        said = [Does(named, "lived", "lived"), " on and had no time-out"]
        alive = [each.place for each in known.logged.alive if each.rank in named]
        sources = tuple([*alive, *(known.ends[rank].place for rank in named if rank in known.ends)][:2])
    elif how is _Shown.WORKS:
        said = [Does(named, "tells", "tell"), " of no time-out"]
        sources = tuple(known.streams[rank].place for rank in named)[:2]
    else:
        said = [Does(named, "is", "are"), " in no line of the log"]
        sources = ()
    doubt = "" if known.whole else "; the log may not be whole"
    # Where a peer's end closed the connections, and no time-out was told, the rank without a word is the one that
    # ended.
    return Reading(
        Strength.NOT_SEEN,
        Outcome.HANG if known.timed_out else Outcome.CRASHED,
        sentence([Does(named, "is", "are"), " missing in ", _where_others_wait(meeting)], said),
        NO_CAUSE if known.timed_out else "HD401",
        named,
        Confidence.LIKELY if likely else Confidence.POSSIBLE,
        why=joined(
            "a call of CUDA's or NCCL's of this rank does not return, or holds Python's lock"
            if how is _Shown.STUCK
            else "",
            where_now(known, named),
            last_words(known, named),
        ),
        fix=_look_at(known, named),
        sure=f"all other members {'are overdue' if known.timed_out else 'were'} in the call, these are not{doubt}",
        meeting=meeting,
        sources=sources,
    )


def _failed(known: Known, meeting: Meeting, named: tuple[int, ...]) -> Reading:
    errors: Mapping[int, Raised] = {each.rank: each for each in reversed(known.failures) if each.rank is not None}
    first = errors[named[0]]
    lives = all(rank in known.alive for rank in named)
    frame = user_frame(first.stack)
    where: Message = [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
    return Reading(
        Strength.FAILURE,
        Outcome.HANG if known.timed_out else Outcome.CRASHED,
        sentence([Does(named, "failed", "failed"), f" with {first.error}", where], waiters(meeting)),
        "HD103" if lives else "HD401",
        named,
        Confidence.POSSIBLE if known.went_on(first) else Confidence.LIKELY,
        why=joined(
            "the exception was raised before the first time-out" if known.timed_out else "",
            "the process lived on" if lives else "",
        ),
        fix="mend what raised it; what the other ranks print afterwards follows from it",
        sure="the exception is in the log; that nothing else kept it from the call is not",
        meeting=meeting,
        sides=(side(named, first.error, first.stack),),
        sources=(first.place,),
    )


def _ended(known: Known, meeting: Meeting, named: tuple[int, ...]) -> Reading:
    end = known.ended[named[0]]
    where = f" on {end.host}" if end.host else ""
    how: Message = [Does(named, "was", "were"), f" killed by signal {end.signal}{where}"]
    if end.signal is None:
        how = [Does(named, "ended", "ended"), f" with status {end.status}{where}"]
    return Reading(
        Strength.FAILURE,
        Outcome.HANG if known.timed_out else Outcome.CRASHED,
        sentence(how, waiters(meeting)),
        "HD402" if end.signal else "HD401",
        named,
        Confidence.LIKELY,
        why="the launcher tells of its end before the first time-out" if known.timed_out else "",
        fix="look at `dmesg` and the scheduler's log of that host at that time" if end.signal == _SIGKILL
        else ["look at the output of ", Ranks(named), " before its end" if len(named) == 1 else " before their end"],
        sure="the end is in the log; who sent the signal is not",
        meeting=meeting,
        sources=(end.place,),
    )  # fmt: skip


def _two_ways(known: Known, meeting: Meeting, named: tuple[int, ...], waiting: tuple[int, ...]) -> Reading:
    """Few wait and many did not come: they made a call too many, or the others left one out."""
    alone = known.whole and not any(rank in known.alive for rank in named)
    return Reading(
        Strength.ALONE if known.whole else Strength.FACTS,
        Outcome.HANG,
        sentence(
            waiters(meeting),
            [Ranks(named), " did not come to it"] if alone else [Does(named, "is", "are"), " not seen in it"],
        ),
        NO_CAUSE,
        waiting if known.whole and len(waiting) * 2 < len(named) + len(waiting) else (),
        Confidence.POSSIBLE,
        alternatives=(named,) if known.whole and len(waiting) * 2 < len(named) + len(waiting) else (named, waiting),
        why=joined(
            [
                Does(waiting, "made", "made"),
                " one call too many, or ",
                Ranks(named),
                " left one out: the log fits both",
            ],
            last_words(known, named),
        ),
        fix="compare the code after the last call that all have made: what runs on some ranks alone",
        sure="both readings fit",
        meeting=meeting,
        sources=tuple(call.place for call in meeting.waiting.values())[:2],
    )


def _circle(known: Known, circle: frozenset[int]) -> Reading:
    meetings = [m for m in known.meetings if circle & set(m.waiting) and m.missing & circle]
    waits = [(tuple(sorted(circle & set(m.waiting))), m) for m in meetings]
    odd = minority([frozenset(ranks) for ranks, _ in waits])
    clauses: list[Message] = [
        [Does(ranks, "waits", "wait"), f" in {name_meeting(m)}", at_line(m.waiting[r] for r in ranks), " for ",
         Ranks.of(sorted(m.missing & circle))]
        for ranks, m in waits
    ]  # fmt: skip
    return Reading(
        Strength.CIRCLE,
        Outcome.HANG,
        sentence(*clauses),
        "HD107",
        tuple(sorted(odd)) if odd else (),
        Confidence.LIKELY if odd else Confidence.POSSIBLE,
        () if odd else tuple(ranks for ranks, _ in waits),
        why="each side waits in one group for ranks that wait in another one: the groups are used in different orders",
        fix="use the groups in one order on all ranks",
        sure="the circle is in the log; the blame falls on the smaller side",
        meeting=meetings[0] if meetings else None,
        sides=tuple(side(r, m.op, m.waiting[r[0]].stack, m.key.group, m.key.sequence) for r, m in waits),
        sources=tuple(m.waiting[r[0]].place for r, m in waits),
    )


def _look_at(known: Known, named: tuple[int, ...]) -> Message:
    own = "its" if len(named) == 1 else "their"
    alive = "" if known.logged.ends else f", {own} stack if it still lives (`py-spy dump`)"
    return ["look at what ", Ranks(named), f" did before the call: {own} own output{alive}"]


def behind_without_timeout(known: Known) -> Iterator[Reading]:
    """Reports of torch's own that stand without any time-out: monitored_barrier, torchfrtrace, a desync report."""
    if any(meeting.key.numbered for meeting in known.meetings):
        return
    kinds = dict.fromkeys(each.place.kind for each in known.logged.behind)
    for kind in kinds:
        # monitored_barrier tells of each rank, and then of all.
        report = max((each for each in known.logged.behind if each.place.kind == kind), key=lambda r: len(r.ranks))
        named = report.ranks
        failed = [each for each in known.failures if each.rank in named]
        only_lowest = kind == _BARRIER and len(named) == 1
        why: Message = "without wait_all_ranks it names the lowest missing rank alone" if only_lowest else ""
        call = name_call(report.op or "a call", report.sequence, report.group)
        frame = user_frame(report.stack)
        where: Message = [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
        reached = {each.rank for each in known.logged.barriers if each.rank is not None and kind == _BARRIER}
        joined_ranks = tuple(sorted({*report.joined, *reached} - set(named)))
        blamed = len(named) <= len(joined_ranks) or not joined_ranks or bool(failed) or only_lowest
        yield Reading(
            Strength.FAILURE if failed else Strength.BEHIND,
            Outcome.HANG,
            sentence(
                [Does(named, "has", "have"), f" not come to {call}", where],
                [Does(joined_ranks, "waits", "wait"), " in it"] if joined_ranks else "",
                [Does((failed[0].rank or 0,), "failed", "failed"), f" with {failed[0].error}"] if failed else "",
            ),
            "HD401" if failed else NO_CAUSE,
            named if blamed else (),
            Confidence.LIKELY,
            () if blamed else (named, joined_ranks),
            why=joined(why, last_words(known, named)),
            fix=_look_at(known, named),
            sure=f"{report.place.kind} says so; why they did not come, it does not say",
            sources=(report.place, *(each.place for each in failed[:1])),
        )
