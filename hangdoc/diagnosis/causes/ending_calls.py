"""Which condition kept the call from being made that would end a wait on a queue, an event or a join.

A consumer in `queue.get()` waits for a `put`, which the program makes at one place: what decides whether that place is
reached decides the wait. Example: `close()` returns under `if self.failed:` before `self.queue.put(None)`, and the
thread waits for that end mark for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import partial

from hangdoc.diagnosis.bounds import DEEPEST, TRIED
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, may_differ, started_under
from hangdoc.diagnosis.causes.phrases import cited, line_of
from hangdoc.diagnosis.causes.wait_chain import child_stacks, stack_at_the_end, stack_of_child
from hangdoc.diagnosis.condition.elsewhere.raised import classes_caught
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.awaits import only_await
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    LOOPS,
    enclosing_function,
    holds,
    innermost_loop,
    last_name,
    walk,
)
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.kinds import ActivityKind, WaitReason
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame, Stack

_ENDING = {
    "get": ("put", "put_nowait"),
    "put": ("get", "get_nowait"),
    "join": ("task_done",),
    "wait": ("set", "notify", "notify_all"),
    "wait_for": ("notify", "notify_all"),
    "acquire": ("release",),
}
"""Method that waits → those of the same object that end the wait: of queues, events, conditions and semaphores."""
_ANSWERS = ("recv", "recv_bytes", "get")
_ANSWERING = ("send", "send_bytes", "put", "put_nowait")
"""By which a process receives requests, and by which it answers them: of pipes and queues between processes."""
_ENDLESS = ("while True:", "while 1:")
"""Loops that no test of theirs ends: who is not in one any more has left it by a jump or an exception."""


def what_would_end_it(case: Case, rank: int, chain: Chain | None = None) -> Message:
    """'`self.queue.put()` at up.py:79 would end that wait; it depends on `if self.failed:` (up.py:76)'; '' where the
    rank's wait is none of these, or nothing decides about the only call that would end it. ``chain``: from another
    rank to the rank's thread that keeps that one waiting."""
    waiting = [*_waiting(case, rank), case.activities[rank].stack]
    if chain is not None:
        waiting = [chain.last.thread.frames] if chain.end is End.OUTSIDE else []
    stacks = list(dict.fromkeys(waiting))[:TRIED]
    living = _living(case, rank)
    ran = partial(_has_run, case, rank)
    found = [ending_condition(case.sources, stack, living=living, ran=ran) for stack in stacks]
    child = stack_at_the_end(case, rank)
    if case.activities[rank].kind == ActivityKind.REMOTE_CALL:
        found.append(set_by_hand(case.sources, case.activities[rank].stack))
    if case.activities[rank].reason == WaitReason.QUEUE:  # whoever fills it may wait itself
        found += [ending_condition(case.sources, each) for each in child_stacks(case, rank)[:TRIED]]
    asked = case.chains.get(rank)
    if asked is not None and asked.end is End.REQUEST:
        found.append(answer_left_out(case.sources, asked.last.thread.frames, asked=True))
    # A child that waits for the rank's next request is not where the chain ends: the rank has the pipe's other end.
    asked_child = child or stack_of_child(case, rank)
    found.append(answer_left_out(case.sources, asked_child) if asked_child else "")
    return next((each for each in found if each), "")


def _has_run(case: Case, rank: int, at: Frame) -> bool:
    return case.table.ran(rank, at.file, at.line) is True


def _waiting(case: Case, rank: int) -> list[Stack]:
    """The stacks at which the rank's wait ends: of a thread, of a child, or its own; at exit those of all threads."""
    chain, process = case.chains.get(rank), case.ranks[rank].process
    look = process.last if process is not None else None
    if case.activities[rank].kind == ActivityKind.SHUTTING_DOWN and look is not None:
        return [t.frames for t in look.threads if look.main is None or t.tid != look.main.tid]
    if chain is not None and chain.end is End.OUTSIDE:
        return [chain.last.thread.frames]
    return [stack_at_the_end(case, rank) or case.activities[rank].stack]


def _living(case: Case, rank: int) -> list[Frame]:
    """The user's frames on all stacks of the rank's threads and children."""
    process = case.ranks[rank].process
    look = process.last if process is not None else None
    threads = [thread.frames for thread in look.threads] if look is not None else []
    return [frame for stack in (*threads, *child_stacks(case, rank)) for frame in user_stack(stack)]


def ending_condition(
    sources: Sources,
    stack: Stack,
    method: str = "",
    *,
    living: Collection[Frame] = (),
    ran: Callable[[Frame], bool] | None = None,
) -> Message:
    """What decides whether the wait of ``stack`` is ended. ``method``: the one that waits, where no library's frame
    shows it; ``living``: where the process's threads and children are; ``ran``: whether it has run a line."""
    own, below = user_stack(stack), below_user(stack)
    known = (*names("waits_for_threads_file"), *names("future_file"))
    if not method and below and (below[-1].file.endswith(known)):
        method = plain(below[-1].function)
    if not method and own and not below:
        method = "acquire"  # a lock's own method has no frame; what is taken and let go in one function is no signal
    name = receiver_of(own[0], method, sources) if own and method in _ENDING else ""
    if method == "result":
        awaited, of = (own and only_await(sources, own[0])) or (None, "")
        ended = ending_condition(sources, (awaited,), of, living=living, ran=ran) if awaited and of else ""
        return ended or set_by_hand(sources, stack)
    if any(plain(f.function) in names("in_barrier") and f.file.endswith("/threading.py") for f in below):
        return ""
    ends = {at: each for each in _ENDING[method] for at in places_of_methods(name, (each,), sources)} if name else {}
    places = [at for at in ends if (at.file, at.line) != (own[0].file, own[0].line)]
    places = list(places)
    places = list(places) or places
    if method in ("wait", "wait_for") and len(places) > 1:
        places = places or places
    if method == "get" and name:
        places = places or places
    if len({(at.file, at.line) for at in places}) != 1:
        return ""
    call: Message = [f"`{name}.{ends[places[0]]}()` at ", line_of(places[0]), " would end that wait"]
    runs = any(same_function(places[0], frame) for frame in living)
    if runs and method == "put":
        return ""  # who takes from the queue is there, and waits as well
    deciding = conditions_of_call(sources, places[0], stack) if method != "put" else []
    deciding = [each for each in deciding if may_differ(sources, places[0], each)]
    if deciding:
        return [
            call,
            ", and depends on ",
            Joined(
                [
                    *deciding,
                ],
                " and ",
            ),
        ]
    raised = _raised_before(sources, places[0], all_round=method == "put")
    if raised is not None:
        return [call, "; the exception under ", raised, " leads past it"]
    started = [] if runs else started_under(sources, places[0], stack)
    if started:
        return [call, ", in what is started under ", Joined(started, " and ")]
    over = ran is not None and ran(places[0]) and not runs
    ended = conditions_of_call(sources, places[0], stack, ("loop",))[:1] if over else []
    ended = [loop for loop in ended if loop.source not in _ENDLESS]
    if ended:
        return [call, ", and the loop around it has ended: ", Joined(ended, " and ")]
    # Another thread, or item, may have gone out where this one came by.
    skips = conditions_of_call(sources, places[0], (), ("return",)) if not runs else []
    return [call, "; ", Joined(skips, " or "), " leads past it"] if skips else ""


def set_by_hand(sources: Sources, stack: Stack) -> Message:
    """What decides whether a future that the program makes itself gets its result."""
    calls = sources.user_calls("set_result")
    if len(calls) != 1:
        return ""
    at = calls[0].at
    deciding = conditions_of_call(sources, at, stack)
    call: Message = ["its result is set at ", line_of(at), ", which depends on "]
    return [call, Joined(deciding, " and ")] if deciding else ""


def answer_left_out(sources: Sources, stack: Stack, *, asked: bool = False) -> Message:
    """What decides whether a process answers what it is sent, where it waits for the next request in a loop. ``asked``:
    it is known to wait for one.

    Example: `text = pipe.recv() ⏎ if len(text) > limit: ⏎ continue ⏎ pipe.send(tokens(text))`, and the process is at
    the first line → the `if`.
    """
    own, below = user_stack(stack), below_user(stack)
    receives = below and below[-1].file.endswith(names("process_channel_file")) and plain(below[-1].function)
    waits = bool(own) and (asked or receives in _ANSWERS or False)
    tree = sources.function(own[0].file, own[0].line) if waits else None
    loops = [node for node in walk(tree) if isinstance(node, LOOPS) and holds(node, own[0].line)] if tree else []
    if len(loops) != 1:
        return ""
    answering = (*_ANSWERING, *(names("writes_to_socket") if asked else ()))
    calls = [node for node in walk(loops[0]) if isinstance(node, ast.Call) and last_name(node.func) in answering]
    if len(calls) != 1 or calls[0].lineno <= own[0].line:
        return ""
    answer = Frame(own[0].file, calls[0].lineno, own[0].function)
    deciding = conditions_of_call(sources, answer, stack)
    what: Message = ["it waits for the next request at ", line_of(own[0]), ", and whether it answers one at "]
    return [what, line_of(answer), " depends on ", Joined(deciding, " and ")] if deciding else ""


def _raised_before(sources: Sources, at: Frame, *, all_round: bool = False) -> Condition | None:
    """The only `if … raise` that is passed before the line is reached, in its round of the loop (``all_round``: in any
    part of it), unless it is caught on the way; None where there are several or none."""
    tree = sources.function(at.file, at.line)
    if tree is None:
        return None
    function = enclosing_function(tree, at.line)
    around = innermost_loop(function, at.line) or function
    before = (getattr(around, "end_lineno", None) or at.line) + 1 if all_round else at.line
    found: set[Condition] = set()
    for condition in _raises(sources, at.file, around, before, DEEPEST, {function}):
        found.add(condition)
        if len(found) > 1:
            return None
    return next(iter(found), None)


def _raises(
    sources: Sources,
    file: str,
    node: ast.AST,
    before: int,
    deep: int,
    seen: set[ast.AST],
    stopped: frozenset[str] = frozenset(),
) -> Iterator[Condition]:
    """The conditions of `raise` in the node's lines before that one, and in the functions that are called there;
    without exceptions that are caught there, or are ``stopped`` further out."""
    tries = [n for n in walk(node) if isinstance(n, ast.Try) and n.handlers]
    tree = ast.Module(body=[node], type_ignores=[]) if isinstance(node, ast.stmt) else node
    for each in walk(node):
        line = getattr(each, "lineno", before)
        if line >= before or not isinstance(each, ast.Raise | ast.Call):
            continue
        around = [n for n in tries if n.body[0].lineno <= line < n.handlers[0].lineno]
        caught = stopped.union(*(classes_caught(sources, handler) for n in around for handler in n.handlers))
        if isinstance(each, ast.Raise):
            inner = next((g for g in reversed(guards(tree, line)) if g.kind != "return"), None)
            if inner is not None and inner.kind == "if":
                yield cited(inner, file)
        elif deep:
            called = sources.user_definitions(last_name(each.func))
            if len(called) == 1:
                ((place, function),) = called
                last = (function.end_lineno or 0) + 1
                if function not in seen:
                    seen.add(function)
                    yield from _raises(sources, place, function, last, deep - 1, seen, caught)
