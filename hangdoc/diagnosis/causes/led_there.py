"""The condition that led the culprit alone to a wait for something that is no collective, where no rule has told it.

The first of these that tells one:

1. what ended the thread or the child that was to end the wait               ``ended_helpers``
2. what would end it, and what decides whether that is done; or whether it   ``ending_calls``, ``lost_notification``,
   was done before, or a loop over what is ended there was left early        ``left_early``
3. of a signal: what decides whom it is sent
   of a key of the store: what decides whether it is set                     ``polled.set_elsewhere``
4. of a lock: by which way who takes it lets it go                           ``source.locks``
5. the conditions over the culprit's stack, which others have not passed     ``deciding.passed_on_its_way``
6. the conditions under which it alone has run lines, or left something      ``left_traces.left_by_culprits``
7. what decides whether the object is made in whose method it waits          ``made_objects``
8. of a worker of a pool that is lost: where the program's own code ends a process

Of a collective, it is the loop that chooses what the call is given, if that has no order: ``deciding``; or what a
library was given by all ranks at one line: ``given_otherwise``.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, loops_of_call
from hangdoc.diagnosis.causes.deciding import chosen_without_order, passed_on_its_way
from hangdoc.diagnosis.causes.ended_helpers import ended_helper
from hangdoc.diagnosis.causes.ending_calls import what_would_end_it
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.given_otherwise import given_otherwise
from hangdoc.diagnosis.causes.idle_helper import passed_by_helper
from hangdoc.diagnosis.causes.left_early import left_early
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.lost_notification import notified_before
from hangdoc.diagnosis.causes.out_of_step import set_anew_under
from hangdoc.diagnosis.causes.phrases import cited, line_of
from hangdoc.diagnosis.causes.polled import set_elsewhere
from hangdoc.diagnosis.causes.uneven_counter import counted_unevenly
from hangdoc.diagnosis.causes.wait_chain import is_pool_idle
from hangdoc.diagnosis.condition.elsewhere.left_behind import is_alike
from hangdoc.diagnosis.condition.elsewhere.made_objects import made_on_the_way
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import fork, same_function, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, split_at_loop
from hangdoc.diagnosis.source.locks import held, only_way_out, ways_to_let_go
from hangdoc.diagnosis.source.syntax import dotted, holds, walk
from hangdoc.model.kinds import GONE, ActivityKind, WaitReason
from hangdoc.model.message import Condition, Joined, Message, Place, conditions_in, joined
from hangdoc.model.process import Frame

_LOOPS = ("for ", "while ", "async for ")
_MOST_FRAMES = 3
"""Of a stack that waits for a lock: the functions around the call that takes it. Chosen by hand."""
_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


def what_led_there(case: Case, blame: Blame[Explanation]) -> Message:
    """What decided about a wait that is no collective's, or what a collective is given; '' where nothing is known."""
    found, culprits = blame.found, blame.culprits
    if isinstance(found, ThreadWait) and culprits == found.waiting:
        return left_by_culprits(case, blame) or _asked_by(case, culprits[0])
    if isinstance(found, ThreadWait):
        return (
            ended_helper(case, culprits)
            or what_would_end_it(case, culprits[0], found.chain)
            or left_by_culprits(case, blame)
            or ended_helper(case, culprits, undecided=True)
        )
    if isinstance(found, WaitCycle) and found.lock_holders:
        return (
            _let_go(case, found)
            or left_by_culprits(case, blame)
            or _waits_inside(case, found)
            or passed_on_its_way(case, blame)
        )
    if not isinstance(found, OutsideWait):
        return chosen_without_order(case, case.activities[culprits[0]].stack)[0] or given_otherwise(case, blame)
    if ended := ended_helper(case, culprits):
        return ended
    told = notified_before(case, culprits[0]) or passed_by_helper(case, blame)
    told = told or what_would_end_it(case, culprits[0]) or counted_unevenly(case, culprits[0])
    early = left_early(case.sources, user_stack(case.activities[culprits[0]].stack))
    if early and all(each.source.startswith(_LOOPS) for each in conditions_in(told)):
        return joined([Joined(early, " or "), " led out of the loop over it before its end"], told)
    if any(conditions_in(told)):
        return told
    found_there = (
        _signal_sent_by(case, culprits[0])
        or _key_set_by(case, culprits[0])
        or passed_on_its_way(case, blame)
        or left_by_culprits(case, blame)
        or _made_under(case, blame)
        or _ends_itself(case, culprits[0])
    )
    if any(conditions_in(found_there)):
        return joined(told, found_there)
    return joined(ended_helper(case, culprits, undecided=True), told, found_there)


def _asked_by(case: Case, rank: int) -> Message:
    """What decides what the rank asks for, where it waits for the answer; '' where nothing is seen to.

    Example: `urlopen(f"{url}?after={self.seen}")`, and `if self.bookmark.exists(): ⏎ self.seen = …` → the `if`.
    """
    where = next(iter(user_stack(case.activities[rank].stack)), None)
    tree = case.sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return ""
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, where.line)]
    given = {dotted(n) for call in calls for each in call.args for n in walk(each) if isinstance(n, ast.Attribute)}
    for name in sorted(each for each in given if each.startswith("self.")):
        if under := set_anew_under(case, where, name):
            return [f"rank {rank} asks for `{name}` there, which is set under ", Joined(under, " and ")]
    return ""


def is_around_wait(case: Case, blame: Blame[Explanation], condition: Condition) -> bool:
    """True for a loop or a condition around the very line at which a culprit waits: there it goes round, or tries
    again, and what led there is another one.

    Example: `while not path.exists(): ⏎ time.sleep(1)` → the `while`.
    """
    for rank in blame.culprits:
        where = next(iter(user_stack(case.activities[rank].stack)), None)
        tree = case.sources.function(where.file, where.line) if where is not None else None
        around = guards(tree, where.line) if tree is not None and where is not None else []
        lines = {(where.file, guard.line) for guard in split_at_loop(around)[1]} if where is not None else set()
        if (condition.file, condition.line) in lines:
            return True
    return False


def _made_under(case: Case, blame: Blame[Explanation]) -> Message:
    """Under which condition the object is made whose method the culprit alone is in, the innermost such object.

    Example: rank 1 waits in StreamSink.emit(), and `sink = StreamSink() if kind == "stream" else FileSink()` → the
    test in that line.
    """
    others = [rank for rank in others_of(case, blame) if case.activities[rank].kind not in GONE]
    stacks = [case.activities[rank].stack for rank in (*blame.culprits[:1], *others[:1])]
    if len(stacks) < 2:
        return ""
    where = fork(*stacks, frames_of=user_stack)
    made = made_on_the_way(case.sources, where.mine, where.theirs, where.common)
    for name in reversed(list(dict.fromkeys(each.name for each in made))):
        around = {(each.frame.file, each.guards[-1]) for each in made if each.name == name}
        if len(around) == 1 and not any(is_alike(guard) for _, guard in around):
            ((file, guard),) = around
            return [f"whether an object of {name} is made, in which it waits, depends on ", cited(guard, file)]
    return ""


def _ends_itself(case: Case, rank: int) -> Message:
    """Where the program's own code ends a process, and under which condition, where a worker of a pool is lost.

    Example: `if scene.cells > BUDGET: ⏎ os._exit(137)`, and the rank waits for a pool whose workers all wait for work.
    """
    process = case.ranks[rank].process
    if process is None or case.activities[rank].reason != WaitReason.POOL or not is_pool_idle(process):
        return ""
    called = {name.rpartition(".")[2] for name in names("exits_process")}
    calls = [each for each in case.sources.user_calls(*called) if dotted(each.call.func) in names("exits_process")]
    ends = [each.at for each in calls]
    found = [(at, deciding) for at in ends if (deciding := conditions_of_call(case.sources, at, ()))]
    if len(found) != 1:
        return ""
    ((at, deciding),) = found
    return ["a worker may have ended itself at ", line_of(at), ", which depends on ", Joined(deciding, " and ")]


def _signal_sent_by(case: Case, rank: int) -> Message:
    """What decides to whom the signal is sent that the rank waits for: the loop and the conditions around the only line
    that sends one.

    Example: `for pid in self.listed(): ⏎ os.kill(pid, signal.SIGUSR1)` → the loop.
    """
    calls = case.sources.user_calls(*names("sends_signal"))
    ends = {each.at for each in calls}
    if case.activities[rank].reason != WaitReason.SIGNAL or len(ends) != 1:
        return ""
    (at,) = ends
    stack = case.activities[rank].stack
    deciding = [*loops_of_call(case.sources, at, stack), *conditions_of_call(case.sources, at, stack)]
    return ["whom a signal is sent at ", line_of(at), " depends on ", Joined(deciding, " and ")] if deciding else ""


def _key_set_by(case: Case, rank: int) -> Message:
    """What decides whether the key of the store is set for which the rank waits."""
    waits = {(where.file, where.line): where for where in _waits_for_keys(case, rank) if where is not None}
    where = next(iter(waits.values()), None)
    found = set_elsewhere(case.sources, where) if where is not None and len(waits) == 1 else None
    if found is None:
        return ""
    at, deciding = found
    if case.activities[rank].kind != ActivityKind.STORE_WAIT:
        told: Message = ["at ", line_of(where), " it waits for a key of the store, and the call that sets such a key ("]
        return [told, line_of(at), ") depends on ", Joined(deciding, " and ")]
    return ["the call that sets such a key (", line_of(at), ") depends on ", Joined(deciding, " and ")]


def _waits_for_keys(case: Case, rank: int) -> list[Frame | None]:
    """Where the rank waits for a key of the store; where it waits for threads, those of them that are in native code.

    Example: main() is over, Python joins a pool's threads, and one of these is in `store.wait(keys)` → that line.
    """
    activity, process = case.activities[rank], case.ranks[rank].process
    look = process.last if process is not None else None
    if activity.kind not in (ActivityKind.SHUTTING_DOWN, ActivityKind.LOCK) or look is None:
        return [activity.where] if activity.kind == ActivityKind.STORE_WAIT else []
    stacks = [thread.frames for thread in look.threads if look.main is None or thread.tid != look.main.tid]
    return [user_stack(stack)[0] for stack in stacks if user_stack(stack) and not below_user(stack)]


def _waits_inside(case: Case, found: WaitCycle) -> Message:
    """The conditions between the line at which the holder takes the lock, and that at which it waits for others.

    Example: `with self.lock: ⏎ if self.stale: ⏎ self.refresh()`, and refresh() waits in a broadcast → the `if`.
    """
    stack = user_stack(case.activities[found.lock_holders[0]].stack)
    for _, since in held(stack, case.sources):
        depth = next(at for at, frame in enumerate(stack) if same_function(frame, since))
        inside: list[Condition] = []
        for frame in reversed(stack[: depth + 1]):
            tree = case.sources.function(frame.file, frame.line)
            around = guards(tree, frame.line) if tree is not None else []
            around = [each for each in around if each.kind in CONDITIONS and not is_alike(each)]
            inside += [
                cited(each, frame.file) for each in around if frame is not stack[depth] or each.line > since.line
            ]
        if inside:
            return ["with the lock taken, it comes to that call under ", Joined(inside[-_MOST_CONDITIONS:], " and ")]
    return ""


def _let_go(case: Case, found: WaitCycle) -> Message:
    """What decides by which way the holder lets go the lock that the others wait for: in a thread, or later, or never.

    Example: `self.lock.acquire() ⏎ if len(rows) > 64: ⏎ pool.submit(self.write_and_release, rows) ⏎ else: ⏎
    self.write_and_release(rows)` → the `if`.
    """
    frames = user_stack(case.activities[found.lock_waiters[0]].stack)[:_MOST_FRAMES]
    for frame in frames:
        ways = ways_to_let_go(frame, case.sources)
        if ways is not None:
            line, guard = ways
            return ["it is let go at ", Place(frame.file, line), ", and how depends on ", cited(guard, frame.file)]
    for frame in frames[1:]:
        way_out = only_way_out(frame, case.sources)
        if way_out is not None:
            return [cited(way_out, frame.file), f" leads out of {plain(frame.function)}() without what follows there"]
    return ""
