"""The way to a message on which its partner is missing, where stacks alone are there to see."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.calls.message_pairs import paired
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_of_rank_alone
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.loops.ran_to_its_end import ran_to_its_end
from hangdoc.diagnosis.condition.loops.way_out import way_out_of
from hangdoc.diagnosis.condition.matching_message import issued_from
from hangdoc.diagnosis.condition.stack_comparison import waits_only
from hangdoc.diagnosis.condition.ways_past import is_settled, loop_left
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, jumps_further_in
from hangdoc.diagnosis.source.items import names_of_items
from hangdoc.diagnosis.source.message_calls import peer_given
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, names_in, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack


def way_to_message(case: Case, peer: int) -> list[Condition]:
    """The conditions of the user's on the way to the message that several ranks exchange with ``peer``, by which the
    peer can have gone past it, the likeliest first.

    Not those on the rank, by which it would never have come there. Example: ranks 1 and 3 wait for rank 2 in
    `exchange()`, which begins with `if not self.wet: return`, and rank 2 is in the all_reduce after it → that `if`.
    """
    waiting = tuple(r for r, a in case.activities.items() if a.kind in MESSAGES and a.peer == peer)
    if len(waiting) < 2 or case.has_history:
        return []
    stack = case.activities[waiting[0]].stack
    points = diverging_guards(case.sources, case.values, (case.activities[peer].stack, stack), ((peer,), waiting))
    mine = [p for p in points if p.guarded == 1 and not (p.of_library or p.rank_like or _waits_only(case, stack, p))]
    mine = [p for p in mine if not ran_to_its_end(case, p, ((peer,), waiting))]
    mine = [(way_out_of(case, p) if p.uneven else None) or p for p in mine if not is_settled(case, p.guard, p.file)]
    return list(dict.fromkeys(Condition(p.guard.condition, p.file, p.guard.line) for p in mine))[:NAMED]


def jumps_past(case: Case, waiter: int, peer: int) -> list[Condition]:
    """The conditions that leave a function on the waiter's way early, further in than its own block, by which the peer
    can have left out its message there; the two nearest to the message.

    Example: both call backward() in a loop, the waiter is in `self.recv()` of it, and elsewhere in it is `if last: ⏎ if
    not valid.any(): return` → the second `if`.
    """
    way = fork(case.activities[waiter].stack, case.activities[peer].stack)
    found: dict[Condition, None] = {}
    for frame in reversed(way.mine[way.common :]):
        tree = case.sources.function(frame.file, frame.line)
        end = getattr(enclosing_function(tree, frame.line), "end_lineno", 0) if tree is not None else 0
        for guard in jumps_further_in(tree, end, None) if tree is not None and end else ():
            if guard.names and not is_of_rank_alone(guard):
                found[Condition(guard.condition, frame.file, guard.line)] = None
    return list(found)[:NAMED]


def issued_to_others(case: Case, waiter: Activity, peer: int) -> Stack:
    """The stack of the last message of the peer's that is like the awaited one, where others got it from a line, or by
    a way to it, from which the waiter has never had one; () otherwise.

    Example: rank 0 sent its stop marks to ranks 1 and 3 by `finish()`, and rank 2, which had all its work by `run()`,
    waits for one more → the stack in `finish()`.
    """
    journal = case.ranks[peer].journal
    if journal is None or waiter.kind not in MESSAGES:
        return ()
    fits = [m for m in journal.point_to_points if (waiter.kind == ActivityKind.RECV) == ("send" in m.op)]
    ways = [(m.peer, user_stack(journal.stack(m.stack))) for m in fits]
    if not ways or not ways[-1][1] or ways[-1][0] == waiter.rank:
        return ()
    mine = {_lines(way) for to, way in ways if to == waiter.rank}
    return ways[-1][1] if mine and _lines(ways[-1][1]) not in mine else ()


def sent_for_others(case: Case, waiter: Activity, peer: int) -> Stack:
    """The stack of the one line from which other ranks issued what their partners took at the line at which the waiter
    waits, where the peer has issued nothing to it from there; () otherwise.

    Example: rank 2 waits in `recv(mark)` at line 9 for rank 1; rank 1 took such a mark at line 9, which rank 0 had sent
    at line 7 under `if op is Op.END:` → rank 0's stack at line 7.
    """
    here = _lines(user_stack(issued_from(case, waiter))[:1])
    journals = {rank: each.journal for rank, each in case.ranks.items() if each.journal is not None}
    found: dict[tuple[tuple[str, int | None], ...], Stack] = {}
    for pair in paired(journals):
        took, gave = reversed(pair) if waiter.kind == ActivityKind.RECV else pair
        at, way = (user_stack(journals[each.rank].stack(each.message.stack)) for each in (took, gave))
        if here and _lines(at[:1]) == here:
            if (took.rank, gave.rank) == (waiter.rank, peer):
                return ()
            found.setdefault(_lines(way[:1]), way)
    return next(iter(found.values())) if len(found) == 1 else ()


def takes_peers_from(case: Case, waiter: Activity, peer: int) -> Condition | None:
    """The loop over whose items the peer passes messages like the awaited one, where it has passed none with the waiter
    there; None where it is in no such loop.

    Example: rank 2 waits in send to rank 3, and rank 3 in `dist.recv(x, src=src)` of `for src in self.sources:`, for
    rank 0 → that loop.
    """
    now = case.activities[peer]
    where = now.where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    if {now.kind, waiter.kind} != MESSAGES or where is None or tree is None or now.peer == waiter.rank:
        return None
    journal = case.ranks[peer].journal
    for message in journal.point_to_points if journal is not None else ():
        if message.peer == waiter.rank and message_way(message.op) == now.kind:
            return None
    calls = [
        n for n in walk(tree) if isinstance(n, ast.Call) and last_name(n.func) in MESSAGES and holds(n, where.line)
    ]
    chosen = {name for call in calls for name in names_in(peer_given(call, call.args))}
    for loop in reversed(guards(tree, where.line)):
        if loop.kind == "loop" and chosen & names_of_items(case.sources, tree, loop, ""):
            return Condition(loop.condition, where.file, loop.line)
    return None


def issued_further_on(case: Case, waiter: Activity, peer: int) -> Stack:
    """The stack of the first message like the awaited one that others have issued to the same rank from lines to which
    the peer, which has left the loop of its last such message, has never come; () where there is none.

    Example: ranks 1 and 2 send batches to rank 0 in a loop and a stop mark in `finish()` after it; rank 2 is in the
    barrier behind that, and only rank 1 has sent its mark → rank 1's stack in `finish()`.
    """
    way = "send" if waiter.kind == ActivityKind.RECV else "recv"
    issued: dict[int, list[Stack]] = {}
    for rank, each in case.ranks.items():
        journal = each.journal
        for message in journal.point_to_points if journal is not None else ():
            if journal is not None and message.peer == waiter.rank and message_way(message.op) == way:
                issued.setdefault(rank, []).append(journal.stack(message.stack))
    mine = issued.pop(peer, [])
    if not mine or loop_left(case, mine[-1], peer) is None:
        return ()
    known, last = {_lines(user_stack(stack)) for stack in mine}, _lines(user_stack(mine[-1]))
    for stacks in issued.values():
        ways = [_lines(user_stack(stack)) for stack in stacks]
        further = [stack for stack, way in zip(stacks, ways, strict=True) if way not in known]
        if last in ways and further:
            return further[0]
    return ()


def between(case: Case, stack: Stack, peer: int) -> list[Condition]:
    """The conditions in the functions of the stack that the peer is not in, by which these can end before its line; the
    nearest to it first. Those on the rank are none."""
    inside = {(frame.file, plain(frame.function)) for frame in case.activities[peer].stack}
    found: dict[Condition, None] = {}
    for frame in user_stack(stack):
        tree = case.sources.function(frame.file, frame.line)
        if tree is None or (frame.file, plain(frame.function)) in inside:
            break
        for guard in reversed(guards(tree, frame.line)):
            if guard.kind in CONDITIONS and not is_of_rank_alone(guard):
                found[Condition(guard.condition, frame.file, guard.line)] = None
    return list(found)[:NAMED]


def chosen_there(case: Case, stack: Stack) -> Condition | None:
    """The condition that chooses the innermost line of the stack among others: `elif op is Op.END:`."""
    frame = next(iter(stack), None)
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    if frame is None or tree is None:
        return None
    around = [g for g in guards(tree, frame.line) if g.kind in ("if", "match") and g.taken]
    around = [g for g in around if not is_of_rank_alone(g)]
    return Condition(around[-1].condition, frame.file, around[-1].line) if around else None


def _lines(way: Stack) -> tuple[tuple[str, int | None], ...]:
    return tuple((frame.file, frame.line) for frame in way)


def _waits_only(case: Case, stack: Stack, point: BranchPoint) -> bool:
    frame = next(iter(user_stack(stack)), None)
    return frame is not None and point.file == frame.file and waits_only(case.sources, frame, point.guard)
