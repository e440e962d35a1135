"""Which condition kept the call from being made that would end a wait on a queue, an event or a join.

A consumer in `queue.get()` waits for a `put`, which the program makes at one place: what decides whether that place is
reached decides the wait. Example: `close()` returns under `if self.failed:` before `self.queue.put(None)`, and the
thread waits for that end mark for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import partial

from hangdoc.diagnosis.bounds import DEEPEST, NAMED, TRIED
from hangdoc.diagnosis.causes.before_the_wait import is_ahead, is_at_the_start
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, may_differ, started_under
from hangdoc.diagnosis.causes.handed_on import handed_on_under, is_called_back
from hangdoc.diagnosis.causes.phrases import cited, line_of
from hangdoc.diagnosis.causes.wait_chain import child_stacks, stack_at_the_end, stack_of_child
from hangdoc.diagnosis.condition.elsewhere.raised import classes_caught, error_of, is_among
from hangdoc.diagnosis.condition.loops.leading_out import leading_out
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.awaits import only_await
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.locks import lets_go
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    LOOPS,
    dotted,
    enclosing_function,
    holds,
    innermost_loop,
    last_name,
    text_of,
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
    if rank in case.deadlocks and look is not None and _waits_for_the_end(case.activities[rank].stack):
        return [case.activities[rank].stack, *(t.frames for t in look.threads[1:])]
    return [stack_at_the_end(case, rank) or case.activities[rank].stack]


def _waits_for_the_end(stack: Stack) -> bool:
    """True if a thread waits until others have run to their end: `thread.join()`, `future.result()`."""
    below = below_user(stack)
    queued = below and below[-1].file.endswith(names("queue_file"))
    return bool(below) and not queued and plain(below[-1].function) in names("waits_for_thread")


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
    if not method and below and (below[-1].file.endswith(known) or _is_proxy(below)):
        method = plain(below[-1].function)
    if not method and own and not below and not lets_go(own[0], sources):
        method = "acquire"  # a lock's own method has no frame; what is taken and let go in one function is no signal
    name = receiver_of(own[0], method, sources) if own and method in _ENDING else ""
    if method == "result":
        awaited, of = (own and only_await(sources, own[0])) or (None, "")
        ended = ending_condition(sources, (awaited,), of, living=living, ran=ran) if awaited and of else ""
        return ended or set_by_hand(sources, stack)
    if any(plain(f.function) in names("in_barrier") and f.file.endswith("/threading.py") for f in below):
        return _left_out_of_barrier(sources, stack, name)
    ends = {at: each for each in _ENDING[method] for at in places_of_methods(name, (each,), sources)} if name else {}
    places = [at for at in ends if (at.file, at.line) != (own[0].file, own[0].line)]
    past = [at for at in places if is_at_the_start(sources, at, name)]
    places = [at for at in places if at not in past or any(same_function(at, frame) for frame in living)]
    places = [at for at in places if not is_ahead(sources, at, stack)] or places
    if method in ("wait", "wait_for") and len(places) > 1:
        places = _sets_what_is_tested(sources, own[0], places) or places
    if method == "get" and name:
        places = _end_marks(sources, own[0], places) or places
    if len({(at.file, at.line) for at in places}) != 1:
        return ""
    call: Message = [f"`{name}.{ends[places[0]]}()` at ", line_of(places[0]), " would end that wait"]
    runs = any(same_function(places[0], frame) for frame in living)
    if runs and method == "put":
        return ""  # who takes from the queue is there, and waits as well
    deciding = conditions_of_call(sources, places[0], stack) if method != "put" else []
    deciding = [each for each in deciding if may_differ(sources, places[0], each)]
    if runs:
        deciding = _without_ways_out(sources, places[0], deciding)
    if deciding or (deciding := handed_on_under(sources, places[0])):
        return [call, ", and depends on ", Joined([*deciding, *handed_on_under(sources, places[0])], " and ")]
    raised = _raised_before(sources, places[0], all_round=method == "put")
    if raised is not None:
        return [call, "; the exception under ", raised, " leads past it"]
    left = [] if runs else leading_out(sources, places[0])
    if 0 < len(left) <= NAMED:
        return [call, "; ", Joined(left, " or "), " leads out of the loop around it"]
    started = [] if runs else started_under(sources, places[0], stack)
    if started:
        return [call, ", in what is started under ", Joined(started, " and ")]
    over = ran is not None and ran(places[0]) and not runs and not is_called_back(sources, places[0])
    ended = conditions_of_call(sources, places[0], stack, ("loop",))[:1] if over else []
    ended = [loop for loop in ended if loop.source not in _ENDLESS]
    if ended:
        return [call, ", and the loop around it has ended: ", Joined(ended, " and ")]
    # Another thread, or item, may have gone out where this one came by.
    skips = conditions_of_call(sources, places[0], (), ("return",)) if not runs else []
    return [call, "; ", Joined(skips, " or "), " leads past it"] if skips else ""


def _is_proxy(below: Stack) -> bool:
    """True for a method of a Manager's object, which that library has made of a text."""
    made = [frame.file for frame in below[-2:]]
    return len(made) == 2 and made[1] == "<string>" and made[0].endswith("/multiprocessing/managers.py")


def _left_out_of_barrier(sources: Sources, stack: Stack, name: str) -> Message:
    """What decides whether a thread, or a process, comes to the barrier at which others of its kind wait.

    Example: `todo = items[slot::3] ⏎ if not todo: ⏎ return ⏎ self.meet.wait()` → the `if`.
    """
    places = places_of_methods(name, ("wait",), sources) if name else []
    if len(places) != 1:
        return ""
    call: Message = [f"`{name}.wait()` at ", line_of(places[0]), " needs all that meet there, and whether one comes "]
    for kinds in (CONDITIONS, ("loop",)):
        deciding = conditions_of_call(sources, places[0], (), kinds) or started_under(sources, places[0], (), kinds)
        deciding = [each for each in deciding if may_differ(sources, places[0], each)]
        if deciding:
            return [call, "depends on ", Joined(deciding, " and ")]
    return ""


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
    reads = bool(own) and not below and _reads_there(sources, own[0])
    waits = bool(own) and (asked or receives in _ANSWERS or reads)
    tree = sources.function(own[0].file, own[0].line) if waits else None
    loops = [node for node in walk(tree) if isinstance(node, LOOPS) and holds(node, own[0].line)] if tree else []
    if len(loops) != 1:
        return ""
    answering = (*_ANSWERING, *(names("writes_to_socket") if asked else names("writes_to_pipe") if reads else ()))
    calls = [node for node in walk(loops[0]) if isinstance(node, ast.Call) and last_name(node.func) in answering]
    if len(calls) != 1 or calls[0].lineno <= own[0].line:
        return ""
    answer = Frame(own[0].file, calls[0].lineno, own[0].function)
    deciding = _without_ways_out(sources, answer, conditions_of_call(sources, answer, stack))
    what: Message = ["it waits for the next request at ", line_of(own[0]), ", and whether it answers one at "]
    return [what, line_of(answer), " depends on ", Joined(deciding, " and ")] if deciding else ""


def _reads_there(sources: Sources, where: Frame) -> bool:
    """True if the line takes more of a file or a pipe. Examples: `for line in inbox:`, `os.read(fd, size)`."""
    tree = sources.function(where.file, where.line)
    nodes = list(walk(tree)) if tree is not None else []
    heads = any(isinstance(node, ast.For) and node.lineno == where.line for node in nodes)
    calls = (node for node in nodes if isinstance(node, ast.Call) and node.lineno == where.line)
    return heads or any(last_name(node.func) in names("reads_from_pipe") for node in calls)


def _without_ways_out(sources: Sources, at: Frame, conditions: list[Condition]) -> list[Condition]:
    """The conditions without those that lead out of the function, which somebody is still in."""
    tree = sources.function(at.file, at.line)
    ifs = [node for node in walk(tree) if isinstance(node, ast.If)] if tree is not None else []
    left = {node.lineno for node in ifs if isinstance(node.body[-1], ast.Return | ast.Break)}
    return [each for each in conditions if each.line not in left]


def _sets_what_is_tested(sources: Sources, waits_at: Frame, places: list[Frame]) -> list[Frame]:
    """Those of the places whose functions set what the loop around the wait tests.

    Example: `while self.frame is None: ⏎ self.cond.wait()` → the `self.cond.notify_all()` after `self.frame = frame`.
    """
    tree = sources.function(waits_at.file, waits_at.line)
    loops = [n for n in walk(tree) if isinstance(n, ast.While) and holds(n, waits_at.line)] if tree else []
    tested = {last_name(n) for n in walk(loops[-1].test) if isinstance(n, ast.Attribute)} if loops else set()
    found = []
    for at in places:
        tree = sources.function(at.file, at.line)
        nodes = walk(enclosing_function(tree, at.line)) if tree is not None else ()
        set_there = (n for n in nodes if isinstance(n, ast.Assign) and not isinstance(n.value, ast.Constant))
        if tested & {last_name(target) for each in set_there for target in each.targets}:
            found.append(at)
    return found


def _end_marks(sources: Sources, waits_at: Frame, places: list[Frame]) -> list[Frame]:
    """Those of the places that put what makes the getting loop leave.

    Example: `item = jobs.get() ⏎ if item is None: ⏎ return` → the line of `jobs.put(None)`.
    """
    tree = sources.function(waits_at.file, waits_at.line)
    nodes = list(walk(enclosing_function(tree, waits_at.line))) if tree is not None else []
    targets = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and holds(node, waits_at.line)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tests = [node for node in nodes if isinstance(node, ast.Compare) and len(node.comparators) == 1]
    marks = {
        text_of(test.comparators[0])
        for test in tests
        if isinstance(test.left, ast.Name) and test.left.id in targets and isinstance(test.ops[0], ast.Is | ast.Eq)
    }
    marks |= {
        text_of(node.args[1])
        for node in nodes
        if isinstance(node, ast.Call) and dotted(node.func) == "iter" and len(node.args) == 2
    }
    return [at for at in places if marks & set(_arguments(sources, at))]


def _arguments(sources: Sources, at: Frame) -> Iterator[str]:
    tree = sources.function(at.file, at.line)
    for node in walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and last_name(node.func) in _ENDING["get"] and holds(node, at.line):
            yield from (text_of(each) for each in node.args[:1])


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
            if inner is not None and inner.kind == "if" and not is_among(error_of(each), caught):
                yield cited(inner, file)
        elif deep:
            called = sources.user_definitions(last_name(each.func))
            if len(called) == 1:
                ((place, function),) = called
                last = (function.end_lineno or 0) + 1
                if function not in seen:
                    seen.add(function)
                    yield from _raises(sources, place, function, last, deep - 1, seen, caught)
