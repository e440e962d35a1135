"""Every stuck rank waits for another stuck rank: which one could free all the others?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.late_to_ask import late_to_ask
from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.condition.first_message import same_way_of_all
from hangdoc.diagnosis.condition.later_in_turn import all_in_turn
from hangdoc.diagnosis.condition.new_order import goes_another_way
from hangdoc.diagnosis.condition.round_left_out import RoundLeftOut, round_left_out
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.uneven_loop import UnevenLoop, uneven_loop
from hangdoc.diagnosis.state.process import descendants
from hangdoc.diagnosis.state.wait_graph import distinct_waits
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence, WaitReason
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.wording import ranks_text


def would_free_all(case: Case) -> list[int]:
    """The stuck ranks each of which would free all others if it alone waited no more.

    Example: 0 waits for 1 and 1 for 0 → [0, 1]; rank 2 waits for both as well → the same.
    """
    needed = {r for w in distinct_waits(case.graph.waits) for r in w.on} & case.graph.stuck
    return [rank for rank in sorted(needed)[:COMPARED] if case.graph.dissolves((rank,))]


def lock_waiters(case: Case) -> tuple[int, ...]:
    """The stuck ranks that wait, themselves or through a child, for a lock that processes share."""
    found = []
    for rank in sorted(case.graph.stuck):
        kind, process = case.activities[rank].kind, case.ranks[rank].process
        below = descendants(process) if process is not None and kind == ActivityKind.WAITING_FOR_CHILD else []
        locking = any(file.is_locking for child in below for file in child.blocking_files)
        found += [rank] if kind == ActivityKind.FILE_LOCK or locking or rank in case.shared_locks else []
    return tuple(found)


def lock_holders(case: Case) -> frozenset[int]:
    """The stuck ranks that hold the locks which other stuck ranks, or their children, wait for."""
    locks = lock_waiters(case)
    return frozenset(holder for r in locks for holder in case.graph.on(r) & case.graph.stuck)


@dataclass(frozen=True, slots=True)
class WaitCycle(Explanation):
    """Every stuck rank waits for another stuck rank."""

    ring: tuple[Activity, ...] = ()
    """If all of them wait for messages: the ranks of one circle, each waiting for the next."""
    loop: UnevenLoop | None = None
    """The loop around the messages of the ring, where the ranks count its rounds differently."""
    left_out: RoundLeftOut | None = None
    """The one rank of the ring that went round its loop without the message which another one awaits."""
    alone: tuple[Condition, ...] = ()
    """Under what the culprit, of all ranks, has been alone that skips a message."""
    lock_waiters: tuple[int, ...] = ()
    """The ranks that wait for a lock that processes share."""
    lock_holders: tuple[int, ...] = ()
    """The ranks that hold it."""
    late: tuple[Condition, ...] = ()
    """Under what the culprit alone has been before it asked another rank for something that it never got."""


def cycle(case: Case) -> Blame[WaitCycle]:
    """The blame of a circle in which all calls match: the order differs, or every rank sends first.

    To blame are the ranks that would free all others by going on; ranks at one place count as one. Example: rank 0
    holds a file lock and waits in barrier, ranks 1 and 2 wait for the lock → rank 0.
    """
    waiting = sorted(r for r in case.graph.stuck if case.graph.on(r) & case.graph.stuck)
    circle = "the wait-for graph is a circle"
    loop = uneven_loop(case, tuple(waiting)) if all(case.activities[r].kind in MESSAGES for r in waiting) else None
    ring = _ring([case.activities[r] for r in sorted(case.graph.stuck)]) or _ring_of_some(case)
    around = uneven_loop(case, tuple(sorted(a.rank for a in ring))) if ring else None
    left_out = _left_out(case, ring) if around is None else None
    found = WaitCycle(ring, around, left_out, (), lock_waiters(case), tuple(sorted(lock_holders(case))))
    if loop is not None and loop.odd:
        sure = f"{circle}; only {ranks_text(loop.odd)} counts {loop.values[loop.odd[0]]} rounds"
        return Blame(found, loop.odd, proved=True, confidence=Confidence.LIKELY, sure=sure)
    if left_out is not None:
        alone = (left_out.rank, *_left_out_elsewhere(case, ring))
        circles = (
            f"{circle}; only" if len(alone) == 1 else f"the wait-for graph has {len(alone)} circles; in each, only"
        )
        sure = f"{circles} rank {' or '.join(map(str, alone))} has gone round without its message"
        return Blame(found, alone, proved=True, confidence=Confidence.LIKELY, sure=sure)
    if around is None and all_in_turn(case, ring) is not None:
        ranks = tuple(sorted(a.rank for a in ring))
        sure = f"{circle}; each of its ranks comes to the one that waits for it later in one loop"
        return Blame(found, ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)
    places = _places(case, waiting)
    if len(places) < 2:
        silent = [(each.rank,) for each in ring]
        if len(silent) == 1:
            sure = f"{circle}; only {ranks_text(silent[0])} does not send before it receives"
            return Blame(found, silent[0], proved=True, confidence=Confidence.LIKELY, sure=sure)
        return Blame(found, tuple(waiting), proved=True, confidence=Confidence.LIKELY, sure=circle)
    if len(skipping := _skipping(case, ring)) == 1:
        ((rank, by),) = skipping.items()
        sure = f"{circle}; rank {rank} alone has run what skips a message"
        return Blame(replace(found, alone=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    odd = _able_to_break(case, places, set(found.lock_holders) | case.held.keys())
    new = [ranks for ranks in odd if not any(_has_passed_before(case, rank) for rank in ranks)]
    first = any(_is_its_first(case, rank) for ranks in odd for rank in ranks)
    if len(odd) > 1 and len(new) == 1 and ring and not first:
        sure = f"{circle}; only {ranks_text(new[0])} never passed such a message before"
        return Blame(found, new[0], proved=True, confidence=Confidence.LIKELY, sure=sure)
    ways = {each.rank: goes_another_way(case, each.rank) for each in ring[:COMPARED]}
    turned = [rank for rank, another in ways.items() if another]
    if len(odd) > 1 and len(turned) == 1 and list(ways.values()).count(False) == len(ways) - 1:
        sure = f"{circle}; rank {turned[0]} alone came to its message by a way that it never went before"
        return Blame(found, (turned[0],), proved=True, confidence=Confidence.LIKELY, sure=sure)
    if len(odd) > 1 and (alike := _all_alike(case, ring, odd)):
        sure = f"{circle}; {ranks_text(alike)} have all gone the same way there"
        return Blame(found, alike, proved=True, confidence=Confidence.LIKELY, sure=sure)
    asked_late = {ranks[0]: by for ranks in odd if len(ranks) == 1 and (by := late_to_ask(case, ranks[0]))}
    if len(odd) > 1 and len(asked_late) == 1:
        ((rank, by),) = asked_late.items()
        sure = f"{circle}; all others with rank {rank}'s part have got what it waits for"
        return Blame(replace(found, late=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    if len(odd) > 1:
        return Blame(found, odd[0], tuple(odd[1:]), proved=True, sure=f"{circle}; either side can break it")
    # A rank that waits for a message cannot break the circle alone: its partner would have to.
    unnamed = any(case.activities[r].reason == WaitReason.UNNAMED for r in odd[0])
    how = Confidence.POSSIBLE if unnamed else Confidence.LIKELY
    sure = f"{circle}; only {ranks_text(odd[0])} can break it"
    return Blame(found, odd[0], proved=True, confidence=how, sure=sure)


def _all_alike(case: Case, ring: tuple[Activity, ...], odd: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The ranks of the circle, where each could break it and all of them begin their exchange at the same line for the
    first time, or, where their messages are not known, by an `if` whose other way begins with the opposite one.

    Example: ranks 1 and 2 both wait in the send at line 72, ranks 0 and 3 in an all_reduce → (1, 2).
    """
    ranks = tuple(sorted(each.rank for each in ring))
    places = {(each.kind, each.where and (each.where.file, each.where.line)) for each in ring}
    if [(rank,) for rank in ranks] != sorted(odd) or len(places) != 1 or ring[0].where is None:
        return ()
    new = not any(_has_passed_before(case, rank) for rank in ranks)
    parting = not case.has_history and same_way_of_all(case.sources, ring) is not None
    return ranks if new or parting else ()


def _skipping(case: Case, ring: tuple[Activity, ...]) -> dict[int, tuple[Condition, ...]]:
    """Rank of the ring → under what it has been that skips a message, and no other rank of the job."""
    return {each.rank: by for each in ring[:COMPARED] if (by := tuple(skipped_alone(case, each.rank)))}


def _has_passed_before(case: Case, rank: int) -> bool:
    """True if the rank has passed a message like the one it waits for: at that line, with that peer. True as well where
    not all of its messages are known.

    Example: in the first rounds rank 0 sent to rank 1 at line 63, and now it sends to rank 3 there → False.
    """
    journal, activity = case.ranks[rank].journal, case.activities[rank]
    if journal is None or not journal.is_history or not journal.has_all_messages:
        return True
    here = [(frame.file, frame.line) for frame in user_stack(activity.stack)[:1]]
    passed = [m for m in journal.point_to_points if m.completed and message_way(m.op) == activity.kind]
    alike = [message for message in passed if message.peer == activity.peer]
    return (
        not here
        or not passed
        or any(
            here == [(frame.file, frame.line) for frame in user_stack(journal.stack(message.stack))[:1]]
            for message in alike
        )
    )


def _is_its_first(case: Case, rank: int) -> bool:
    """True if the rank has never passed a message that way, to or from any rank: then it is new wherever it goes."""
    journal, kind = case.ranks[rank].journal, case.activities[rank].kind
    messages = journal.point_to_points if journal is not None else ()
    return not any(message.completed and message_way(message.op) == kind for message in messages)


def _left_out(case: Case, ring: tuple[Activity, ...]) -> RoundLeftOut | None:
    """The only round of a rank in the ring that left out what the one before it awaits."""
    found = [round_left_out(case, each, each.peer) for each in ring if each.peer in case.activities]
    known = [each for each in found if each is not None]
    return known[0] if len(known) == 1 else None


def _left_out_elsewhere(case: Case, ring: tuple[Activity, ...]) -> list[int]:
    """The same rank of each further circle beside this one. Example: 0 and 2 wait for each other, and so do 1 and 3."""
    found: list[int] = []
    while ring:
        seen = {each.rank for each in ring} | set(found)
        rest = [case.activities[rank] for rank in sorted(case.graph.stuck - seen)]
        another = _ring([each for each in rest if each.kind in MESSAGES and each.peer not in seen])
        closed = bool(another) and another[-1].peer == another[0].rank
        left = _left_out(case, another) if closed else None
        if left is None:
            break
        found.append(left.rank)
        ring = (*ring, *another)
    return found


def _places(case: Case, waiting: list[int]) -> list[tuple[int, ...]]:
    """The ranks that wait in one call at one line, together; the fewest first."""
    by_place: dict[tuple[object, ...], list[int]] = {}
    for rank in waiting:
        activity = case.activities[rank]
        place = (activity.group, activity.members, activity.op, activity.where and activity.where.line)
        by_place.setdefault(place, []).append(rank)
    return sorted((tuple(ranks) for ranks in by_place.values()), key=lambda ranks: (len(ranks), ranks))


def _able_to_break(case: Case, places: list[tuple[int, ...]], holders: set[int]) -> list[tuple[int, ...]]:
    """The smallest sets of ranks that would free all others by going on; those of lock ``holders`` alone, if any.

    A rank that holds a lock and waits for ranks that want it only has to release it. Example: 0 waits for 1 and 2,
    which both wait for 0 → [(0,)]; 0 and 1 wait for 2 and 3, and 2 and 3 for 0 and 1 → [(0, 1), (2, 3)].
    """
    alone: list[tuple[int, ...]] = [(rank,) for rank in would_free_all(case)]
    enough = alone or [ranks for ranks in places[:COMPARED] if case.graph.dissolves(ranks)] or places
    odd = [ranks for ranks in enough if len(ranks) == len(enough[0])]
    return [ranks for ranks in odd if holders.issuperset(ranks)] or odd


def _ring_of_some(case: Case) -> tuple[Activity, ...]:
    """The circle of those stuck ranks that wait for messages, where all others wait for them; () where there is none.

    Example: 1 receives from 3 and 3 from 1, and 0 and 2 are in a barrier → (1, 3).
    """
    stuck = [case.activities[rank] for rank in sorted(case.graph.stuck)]
    ring = _ring([each for each in stuck if each.kind in MESSAGES and each.peer is not None])
    closed = bool(ring) and ring[-1].peer == ring[0].rank
    return ring if closed and case.graph.dissolves([each.rank for each in ring]) else ()


def _ring(stuck: list[Activity]) -> tuple[Activity, ...]:
    """The ranks of the circle, each before the one that it waits for.

    All stuck ranks if some peer is unknown; none if one of them waits for something that is not a message.

    Example: 0 receives from 1, 1 from 2, 2 from 1 → (1, 2).
    """
    if not stuck or any(a.kind not in MESSAGES for a in stuck):
        return ()
    by_rank = {a.rank: a for a in stuck}
    way: list[Activity] = []
    here: Activity | None = stuck[0]
    while here is not None and here not in way:
        way.append(here)
        here = by_rank.get(here.peer) if here.peer is not None else None
    return tuple(way[way.index(here) :] if here is not None else stuck)
