"""A flight recorder for control flow: how the branches of the program came out. CPython 3.12 and 3.13.

``sys.monitoring`` tells of each code object once that it is called. In the user's, and in the loops of frameworks that
drive it, it then tells of every branch, and of every line once; of all other code nothing more. Of each branch the
outcomes are counted; the newest of the main thread are kept with their times, and those of all other threads.

Rings are deques of tuples: flat buffers of integers take 90 ns more an event (3.12.1), and a lookup in thread-local
state, for a ring of each thread, 40 ns more than asking for the thread.

No ``except`` stands around what the callbacks do: an exception that a signal or another thread raises in there is meant
for the user's code, and goes on to it. So nothing in them may raise by itself. They reach all they need by their
defaults, as a module's globals go before the last code of the program has run.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident
from collections import deque
from time import process_time_ns, time_ns

VERSIONS = ((3, 12), (3, 13))
NAME = "hangdoc"
TOOLS = (3, 4)  # ids that no kind of tool has of its own (PEP 669)

# What it may cost. Judgement.
EVENT_NS = 350  # measured: some 300
SHARE = 0.0035  # of a rank's CPU time, and the rest at once: 0.5 % over ten seconds
MOST_AT_ONCE_NS = 15_000_000
JUDGED_EVERY = 64  # outcomes of a branch; a power of two
MOST_CODES = 4000  # a program of the user's has some hundred
MOST_TYPED_IN = 100  # of these, code without a file: exec makes new code each time
MOST_BYTES = 1 << 19  # of bytecode; each takes 9 bytes of counts and of what was there before
RING = 3000  # outcomes of the main thread, and of the others: 450 KB each
DEEPEST = 50  # frames among which another one of the same function is looked for

# The user's files are those outside the libraries. Names in brackets are no files; what is typed in has these.
TYPED_IN = ("<string>", "<stdin>", "<ipython-input")
# Modules of libraries whose loops call the user's code, by what their paths have in them.
LOOPS = (
    "/colossalai/pipeline/schedule/",
    "/composer/trainer/trainer.py",
    "/deepspeed/runtime/engine.py",
    "/deepspeed/runtime/pipe/engine.py",
    "/deepspeed/runtime/pipe/schedule.py",
    "/ignite/engine/engine.py",
    "/lightning/pytorch/loops/",
    "/lightning/pytorch/trainer/",
    "/megatron/core/pipeline_parallel/schedules.py",
    "/megatron/training/training.py",
    "/pytorch_lightning/loops/",
    "/pytorch_lightning/trainer/",
    "/torch/distributed/pipelining/schedules.py",
    "/torchtnt/framework/",
    "/transformers/trainer.py",
    "/trl/trainer/",
)


class Branches:
    """What is known of this process. By the ids of code objects, which are kept: hashing one takes 400 ns."""

    def __init__(self, roots):
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)
        self.codes = {}
        self.watched = {}  # those of which the events come
        self.outcomes = {}  # how often each branch came out in each way, by ``slot``
        self.lines = {}  # those that have run since
        self.before = {}  # the bytecode, with the interpreter's own counters, as it was then
        self.hot = {}  # (id, offset) of branches that came too often, and are told of no more
        self.unlined = {}  # code whose new lines are told of no more: the interpreter's counters go on
        self.nested = {}  # code that has called itself, by whatever way
        self.main = threading.main_thread().ident
        self.rings = deque(maxlen=RING), deque(maxlen=RING)  # of the main thread, and of all others
        self.tool = None
        self.why = ""  # nothing is recorded

    def start(self, hide):
        """Begin. ``hide``: keeps torch.compile away from functions."""
        if sys.version_info[:2] not in VERSIONS or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        monitoring = sys.monitoring
        free = [tool for tool in TOOLS if monitoring.get_tool(tool) is None]
        if not free:
            self.why = "other tools have taken tool ids 3 and 4 of sys.monitoring"
            return
        self.tool = free[0]
        monitoring.use_tool_id(self.tool, NAME)
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self.stop)
        events = monitoring.events
        decide, line, branch = _callbacks(self, self.tool)
        for event, callback in (
            (events.PY_START, decide),
            (events.PY_RESUME, decide),
            (events.LINE, line),
            (events.BRANCH, branch),
        ):
            hide(callback, *callback.__defaults__)
            monitoring.register_callback(self.tool, event, callback)
        for frame in list(sys._current_frames().values()):
            while frame is not None:
                decide(frame.f_code, 0)
                frame = frame.f_back  # noqa: PLW2901 - outwards
        monitoring.set_events(self.tool, events.PY_START | events.PY_RESUME)

    def stop(self):
        """At exit, and in a forked child: it is no rank, or begins anew."""
        monitoring = sys.monitoring
        tool, self.tool = self.tool, None
        try:
            if tool is None or monitoring.get_tool(tool) != NAME:
                return
            monitoring.set_events(tool, 0)
            for event in ("PY_START", "PY_RESUME", "LINE", "BRANCH"):
                monitoring.register_callback(tool, getattr(monitoring.events, event), None)
            for code in list(self.codes.values()):
                monitoring.set_local_events(tool, code, 0)
            monitoring.free_tool_id(tool)
        except Exception:  # the exit goes on, and the fork
            return


def slot(offset, destination):
    """Where a branch's outcome is counted: each way has a place of its own among those of its instruction.

    Without a jump it goes on 2 or 4 bytes further, and one may jump just over one instruction.
    """
    return destination - 2 if destination - offset < 5 else offset + 1


def _callbacks(state, tool):
    """(of a call, of a line, of a branch)"""
    monitoring = sys.monitoring
    events, branches = monitoring.events.LINE | monitoring.events.BRANCH, monitoring.events.BRANCH
    chosen, left = {}, [MOST_CODES, MOST_TYPED_IN, MOST_BYTES]
    budget, marks = [MOST_AT_ONCE_NS, process_time_ns()], {}
    begun = budget[1]

    def chooses(file, chosen=chosen, roots=state.roots, loops=LOOPS, typed_in=TYPED_IN, left=left, str=str, type=type):
        if type(file) is not str:
            return False
        if file[:1] == "<":
            return left[1] > 0 and file.startswith(typed_in)
        found = chosen.get(file)
        if found is None:
            found = chosen[file] = not file.startswith(roots) or any(part in file for part in loops)
        return found

    def watch(
        code,
        watched=state.watched,
        left=left,
        tool=tool,
        name=NAME,
        events=events,
        codes=state.codes,
        before=state.before,
        outcomes=state.outcomes,
        lines=state.lines,
        get_tool=monitoring.get_tool,
        set_events=monitoring.set_events,
        set_local_events=monitoring.set_local_events,
        id=id,
        len=len,
        set=set,
    ):
        bytecode = code._co_code_adaptive
        if get_tool(tool) != name:
            return
        if left[0] <= 0 or left[2] < len(bytecode):
            set_events(tool, 0)  # what has not been called yet keeps the interpreter's counters
            return
        key = id(code)
        # May be interrupted anywhere, and is called again then. A code object that is kept keeps its id.
        codes.setdefault(key, code)
        before.setdefault(key, bytecode)
        outcomes.setdefault(key, [0] * (len(bytecode) + 2))
        lines.setdefault(key, set())
        set_local_events(tool, code, events)
        watched[key] = True
        left[0] -= 1
        left[1] -= code.co_filename[:1] == "<"
        left[2] -= len(bytecode)

    def judge(
        code,
        offset,
        count,
        budget=budget,
        marks=marks,
        begun=begun,
        told=state.hot,
        unlined=state.unlined,
        nested=state.nested,
        tool=tool,
        name=NAME,
        branches=branches,
        get_tool=monitoring.get_tool,
        set_local_events=monitoring.set_local_events,
        getframe=sys._getframe,
        now=process_time_ns,
        every=JUDGED_EVERY * EVENT_NS,
        share=SHARE,
        most=MOST_AT_ONCE_NS,
        deepest=DEEPEST,
        id=id,
        len=len,
        min=min,
        max=max,
    ):
        """True if the branch is to be disabled: the budget is used up, and it takes more than its part of it."""
        key = id(code)
        if count == 1:
            # That which ends a recursion comes out so first where it is deepest.
            frame = None if key in nested else getframe(2).f_back
            while frame is not None and deepest:
                if frame.f_code is code:
                    nested[key] = True
                    break
                frame, deepest = frame.f_back, deepest - 1
            return False
        at = now()
        since = at - marks.get((key, offset), begun)
        marks[key, offset] = at
        rest = min(most, budget[0] + (at - budget[1]) * share) - every
        budget[:] = max(0, rest), at
        if rest >= 0 or since * share >= every * len(marks):
            return False
        told[key, offset] = True
        # The interpreter looks for new lines where one begins, also after it has told of all of them: 5 % of a loop.
        if key not in unlined and get_tool(tool) == name:
            unlined[key] = True
            set_local_events(tool, code, branches)
        return True

    def decide(code, _offset, watched=state.watched, chooses=chooses, watch=watch, id=id, disable=monitoring.DISABLE):
        if id(code) not in watched and chooses(code.co_filename):
            watch(code)
        return disable

    def line(code, number, lines=state.lines, id=id, disable=monitoring.DISABLE):
        lines[id(code)].add(number)
        return disable

    def branch(
        code,
        offset,
        destination,
        outcomes=state.outcomes,
        main=state.main,
        of_main=state.rings[0].append,
        of_others=state.rings[1].append,
        judge=judge,
        get_ident=get_ident,
        id=id,
        now=time_ns,
        rest=JUDGED_EVERY - 1,
        disable=monitoring.DISABLE,
    ):
        slot = destination - 2 if destination - offset < 5 else offset + 1
        counts = outcomes[id(code)]
        count = counts[slot] + 1
        counts[slot] = count
        (of_main if get_ident() == main else of_others)((code, slot, now()))
        return disable if count & rest == 1 and judge(code, offset, count) else None

    return decide, line, branch
