"""HD5xx: what a rank waits for, followed from thread to thread, within it and in other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.blame.missing_request import MissingRequest, NoFurtherRequest
from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.deciding import passed_on_its_way, what_decided
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import cited, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.thread_chain import state
from hangdoc.diagnosis.condition.loops.leading_out import leading_out
from hangdoc.diagnosis.condition.loops.left_out import items_left_out
from hangdoc.diagnosis.condition.loops.round_or_loop import skipped_round
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.awaits import awaits_in_loops
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Verb, joined, sentence


@cause("HD102", "HD505", explains=MissingRequest, order=86)
def one_call_short(case: Case, blame: Blame[MissingRequest]) -> Finding | None:
    """HD505: the function that ranks called answers only when all of them have called it, and one has not. HD102 where
    that one has left the loop in which the others call it."""
    found, called = blame.found, blame.found.called
    culprits, waiting = blame.culprits, found.waiting
    first = case.activities[waiting[0]]
    loop = found.branch_point if found.branch_point is not None and found.branch_point.uneven else None
    dropped = items_left_out(case.sources, loop)[:NAMED] if loop is not None else []
    further = found.chain.asked if found.chain is not None else ()
    needed = f"{further[0]}()" if further else "it"
    held: Message = ", which no thread runs any more: it answers after a further call; "
    if found.chain is not None:
        asked = found.chain.last
        of: Message = f" of {needed}" if further else ""
        held = [f" from rank {asked.rank}, which waits at ", place(asked.where), " for a further call", of, "; "]
    skipped = skipped_round(case.sources, found.branch_points) if found.branch_point is not None else None
    decided = what_decided(case, blame)
    lines = awaits_in_loops(case.sources, first.where) if first.where is not None and not decided else []
    ways = list(dict.fromkeys(each for line in lines for each in leading_out(case.sources, line)))[:NAMED]
    if not (decided or lines or dropped):
        # No branch between the two stacks: what the waiting ranks passed on their way, the culprits took otherwise.
        decided = passed_on_its_way(case, replace(blame, culprits=waiting))
        skips = list(dict.fromkeys(ways_past(case, waiting[0], culprits[0])))[:NAMED] if not decided else []
        decided = [Joined(skips, " or "), " may have kept ", Ranks(culprits), " from a call"] if skips else decided
    where: Message = (
        ["one of its rounds may have skipped the call, at ", cited(skipped.guard, skipped.file)]
        if (skipped is not None)
        else ""
    )
    return Finding(
        "HD102" if loop is not None else "HD505",
        sentence(
            [
                [Does(waiting, "waits", "wait"), " at ", place(first.where), f" for the answer of {called}()", held],
                [Does(culprits, "has", "have"), " not made it"],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                [f"{called}() answers only when another rank has called {needed} too, and "],
                [Does(culprits, "waits", "wait"), " for ", Ranks(waiting)],
            ],
            decided,
            where,
            ["what it goes over leaves items out by ", Joined(dropped, " and ")] if dropped else "",
            [Joined(ways, " or "), " leads out of the loop that makes the call"] if ways else "",
        ),
        f"let every rank call {further[0] if further else called}() equally often (with an empty contribution in place "
        "of none), or let it answer without those that are done",
        decided_at=next(iter((*dropped, *ways)), None),
    )


def ways_past(case: Case, rank: int, absent: int) -> Iterator[Condition]:
    """The early ways out of the functions by which the rank came to its request, and in which the absent one is not."""
    where = fork(case.activities[rank].stack, case.activities[absent].stack, frames_of=user_stack)
    for frame in where.mine[where.common + 1 :]:
        yield from conditions_of_call(case.sources, frame, (), ("return",))


@cause("HD102", "HD505", explains=NoFurtherRequest, order=87)
def nothing_more_to_take(case: Case, blame: Blame[NoFurtherRequest]) -> Finding:
    """HD102: what a rank asks another one for is brought by a third, whose loop has ended; HD505 where it brings that
    in no loop.

    Example: two takers wait for end marks in next_task(), and the planner has filed one with file_task().
    """
    found, culprits = blame.found, blame.culprits
    server, asked = found.chain.last, found.chain.asked[0]
    called = plain(user_stack(server.thread.frames)[-1].function)
    first = case.activities[found.waiting[0]]
    loops = [each for at in found.places for each in conditions_of_call(case.sources, at, (), ("loop",))[-1:]]
    under = [each for at in found.left_out for each in conditions_of_call(case.sources, at, ())[-1:]]
    loops, under = list(dict.fromkeys(loops))[-NAMED:], list(dict.fromkeys(under))[-NAMED:]
    return Finding(
        "HD102" if loops else "HD505",
        sentence(
            [
                [Does(found.waiting, "waits", "wait"), " at ", place(first.where), f" for the answer of {called}()"],
                [f" from rank {server.rank}, which is ", state(server), f" for a further call of {asked}(); "],
                ["only ", Ranks(culprits), " called that, and ", Verb(culprits, "is", "are"), " past it"],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                [f"{called}() answers only when {asked}() has been called, and "],
                [Does(culprits, "waits", "wait"), " for ", Ranks(found.waiting)],
            ],
            [
                [Does(culprits, "called", "called"), f" {asked}() at ", Joined([*map(line_of, found.places)], " and ")],
                [", and ", Joined(loops, " and "), " ended there" if len(loops) == 1 else " have ended there"],
            ]
            if loops
            else "",
            [Joined(under, " and "), f" decided that a call of {asked}() was left out"] if under else "",
        ),
        f"let {asked}() be called once for each answer of {called}() that is waited for (an end mark for each rank "
        "that asks), or let it answer that nothing more comes",
        decided_at=next(iter((under or loops)[-1:]), None),
    )
