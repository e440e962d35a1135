"""HD5xx: what a rank waits for, followed from thread to thread, within it and in other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.blame.missing_request import AllAsked, MissingRequest, NoFurtherRequest
from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.deciding import passed_on_its_way, what_decided
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import cited, line_of, place, waiting_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.thread_chain import ENDS, clauses, state, thread_name
from hangdoc.diagnosis.condition.loops.leading_out import leading_out
from hangdoc.diagnosis.condition.loops.left_out import items_left_out
from hangdoc.diagnosis.condition.loops.round_or_loop import skipped_round
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.awaits import awaits_in_loops
from hangdoc.diagnosis.source.calls_between import requests
from hangdoc.diagnosis.state.threads import Chain, End, Node, thread_wait_of
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Verb, joined, sentence

_FIX_LOCK = (
    "never hold a lock over a collective or a call of another rank: copy what it guards, let it go, then communicate"
)
_FIX_ORDER = (
    "do what the thread waits for before the call that needs the ranks that wait for the thread, or let these ask later"
)
_FIX_END = (
    "let the thread end the wait of those who ask it whatever happens: give its own wait a timeout, and answer with an "
    "error when there is nothing more to give"
)
_MOST_DROPPED = 2
"""Conditions by which an iterator leaves items out; chosen by hand."""
_FIX_WORK = "let that thread work ahead, so that nobody has to wait for it"


@cause("HD501", "HD503", "HD504", "HD505", "HD507", "HD508", "HD509", explains=ThreadWait, order=345)
def held_up_by_a_thread(case: Case, blame: Blame[ThreadWait]) -> Finding:
    """A thread of the culprit keeps other ranks waiting, whatever its main thread does."""
    chain = blame.found.chain
    locked = chain.end is not End.OUTSIDE
    told = {*blame.found.waiting, *(blame.culprits if locked else ())}
    return Finding(
        "HD505" if locked else ENDS.get(thread_wait_of(chain.last).kind, "HD505"),
        sentence(
            _summary(case, blame), where_they_wait(case, tuple(r for r in sorted(case.activities) if r not in told))
        ),
        joined(*(clauses(chain) if locked or len(chain.hops) > 2 else ()), _conclusion(chain)),
        _fix(chain),
    )


@cause("HD102", "HD505", explains=MissingRequest, order=86)
def one_call_short(case: Case, blame: Blame[MissingRequest]) -> Finding | None:
    """HD505: the function that ranks called answers only when all of them have called it, and one has not. HD102 where
    that one has left the loop in which the others call it."""
    found, called = blame.found, blame.found.called
    culprits, waiting = blame.culprits, found.waiting
    first = case.activities[waiting[0]]
    loop = found.branch_point if found.branch_point is not None and found.branch_point.uneven else None
    dropped = items_left_out(case.sources, loop)[:_MOST_DROPPED] if loop is not None else []
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
    ways = list(dict.fromkeys(each for line in lines for each in leading_out(case.sources, line)))[:_MOST_DROPPED]
    if not (decided or lines or dropped):
        # No branch between the two stacks: what the waiting ranks passed on their way, the culprits took otherwise.
        decided = passed_on_its_way(case, replace(blame, culprits=waiting))
        skips = list(dict.fromkeys(ways_past(case, waiting[0], culprits[0])))[:_MOST_DROPPED] if not decided else []
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
    loops, under = list(dict.fromkeys(loops))[-_MOST_DROPPED:], list(dict.fromkeys(under))[-_MOST_DROPPED:]
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


@cause("HD505", explains=AllAsked, order=89)
def all_asked(case: Case, blame: Blame[AllAsked]) -> Finding:
    """HD505: a function that answers only when all have called it waits, and so do all that call it: one of them has
    left out a call before."""
    found, called = blame.found, blame.found.called
    server, first = found.chain.last, case.activities[found.waiting[0]]
    places = requests(case.sources).get(called, ())
    under = list(dict.fromkeys(each for at in places for each in conditions_of_call(case.sources, at, ())[-1:]))
    told: Message = [Joined(under[:_MOST_DROPPED], " or "), " decides whether a rank makes the call"]
    until = conditions_of_call(case.sources, server.where, (), ("loop",))[-1:] if server.where and not under else []
    if until:
        told = [
            Joined(until),
            " has not ended: of calls that it does not tell apart, such as two that give one name, it ",
        ]
        told += ["may count one"]
    return Finding(
        "HD505",
        sentence(
            [
                [Does(found.waiting, "waits", "wait"), " at ", place(first.where), f" for the answer of {called}()"],
                [f" from rank {server.rank}, which waits at ", place(server.where), " for a further call; no other "],
                ["rank is on its way to make one"],
            ],
            where_they_wait(case, tuple(r for r in sorted(case.activities) if r not in found.waiting)),
        ),
        joined(
            f"{called}() answers only when all have called it; one of them has left out a call before, or they differ "
            "in which round they are",
            told if under or until else "",
        ),
        f"let every rank call {called}() equally often (with an empty contribution in place of none), or let it answer "
        "without those that left it out",
        "which of them left out a call was not seen",
        decided_at=next(iter((*under, *until)), None),
    )


def _summary(case: Case, blame: Blame[ThreadWait]) -> Message:
    """'rank 1 waits at load.py:9 next() for thread `server` of rank 0, which is waiting on a queue at serve.py:7'."""
    chain, waiting = blame.found.chain, blame.found.waiting
    first = case.activities[waiting[0]]
    servant = next(hop.node for hop in chain.hops[1:] if hop.node.rank != waiting[0] or not hop.node.is_main)
    waits: Message = [Does(waiting, "waits", "wait"), " at ", place(first.where), " for ", thread_name(servant)]
    if chain.end is End.OUTSIDE:
        further: Message = "" if chain.last == servant else [", whose wait leads to ", thread_name(chain.last)]
        return [waits, further, ", which is ", state(chain.last)]
    hop = chain.lock
    if hop is None or hop.lock is None:
        before: Message = [" would end that wait, and ", _in_call(case, chain.last, blame.culprits), " first"]
        return [waits, ", which is ", state(chain.hops[-2].node), "; ", Ranks(blame.culprits), before]
    holds: Message = [Does(blame.culprits, "holds", "hold"), f" the lock `{hop.lock.name}` while "]
    doing: Message = ["it " if len(blame.culprits) == 1 else "they ", _in_call(case, chain.after(hop), blame.culprits)]
    if chain.end is End.CALL:
        return [holds, doing, "; ", waits, ", which needs that lock"]
    return [
        holds,
        doing,
        ", and what is called there needs ",
        "that lock" if len(blame.culprits) == 1 else "the other's",
    ]


def _in_call(case: Case, holder: Node, ranks: tuple[int, ...]) -> Message:
    """What the holder of a lock is in: 'waits in all_reduce at train.py:44 main()'."""
    one = len(ranks) == 1
    if holder.is_main and case.activities[holder.rank].kind in COMMUNICATING:
        return ["waits " if one else "wait ", waiting_at(case, (holder.rank,))]
    return ["is " if one else "are ", state(holder)]


def _fix(chain: Chain) -> str:
    if chain.end is End.OUTSIDE:
        return _FIX_WORK if thread_wait_of(chain.last).kind == ActivityKind.COMPUTING else _FIX_END
    return _FIX_LOCK if chain.lock is not None else _FIX_ORDER


def _conclusion(chain: Chain) -> Message:
    if chain.end is End.CIRCLE:
        return "none of them can go on before the other"
    if chain.end is End.OUTSIDE and thread_wait_of(chain.last).kind == ActivityKind.COMPUTING:
        return "that thread works, and the others have nothing to do but wait"
    return "no thread that was seen would end that wait" if chain.end is End.OUTSIDE else ""
