"""A flight recorder for control flow: how the branches of the program came out. CPython 3.12 and 3.13.

``sys.monitoring`` tells of each code object once that it is called. In the user's, and in the loops of frameworks that
drive it, it then tells of every branch, and of every line once; of all other code nothing more. Of each branch the
outcomes are counted; the newest are kept with their times, a ring for each thread.

No ``except`` stands around what the callbacks do: an exception that a signal or another thread raises in there is meant
for the user's code, and goes on to it. So nothing in them may raise by itself. They reach all they need by their
defaults, as a module's globals go before the last code of the program has run.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from _thread import _local, get_ident
from collections import deque
from time import process_time_ns, time_ns

VERSIONS = ((3, 12), (3, 13))
NAME = "hangdoc"
TOOLS = (3, 4)  # ids that no kind of tool has of its own (PEP 669)

# What it may cost. Judgement.
EVENT_NS = 350  # measured: some 300
SHARE = 0.0025  # of a rank's CPU time, and as much again at once: 0.5 % over ten seconds
MOST_AT_ONCE_NS = 25_000_000
JUDGED_EVERY = 64  # outcomes of a branch; a power of two
MOST_CODES = 4000  # a program of the user's has some hundred
MOST_TYPED_IN = 100  # of these, code without a file: exec makes new code each time
MOST_BYTES = 1 << 19  # of bytecode; each takes 9 bytes of counts and of what was there before
RING = 3000  # outcomes of a thread: 450 KB
MOST_RINGS = 6

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
        self.rings = []  # (thread, weak reference to its ring): a ring ends with its thread
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
        hide(_Ring.__init__)
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


class _Ring(_local):
    """A thread's newest outcomes. ``push`` is made at a thread's first; beyond ``MOST_RINGS`` it keeps nothing."""

    def __init__(self, rings, deque=deque, ref=weakref.ref, get_ident=get_ident, size=RING, most=MOST_RINGS, keep=id):
        rings[:] = [each for each in rings if each[1]() is not None]
        if len(rings) < most:
            ring = deque(maxlen=size)
            rings.append((get_ident(), ref(ring)))
            keep = ring.append
        self.push = keep


def _callbacks(state, tool):
    """(of a call, of a line, of a branch)"""
    monitoring = sys.monitoring
    events, branches = monitoring.events.LINE | monitoring.events.BRANCH, monitoring.events.BRANCH
    chosen, left = {}, [MOST_CODES, MOST_TYPED_IN, MOST_BYTES]
    budget, marks = [MOST_AT_ONCE_NS, process_time_ns()], {}
    begun, ring = budget[1], _Ring(state.rings)

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

    def hot(
        code,
        offset,
        budget=budget,
        marks=marks,
        begun=begun,
        told=state.hot,
        lines=state.lines,
        tool=tool,
        name=NAME,
        branches=branches,
        get_tool=monitoring.get_tool,
        set_local_events=monitoring.set_local_events,
        now=process_time_ns,
        every=JUDGED_EVERY * EVENT_NS,
        share=SHARE,
        most=MOST_AT_ONCE_NS,
        id=id,
        len=len,
        min=min,
        max=max,
    ):
        """True if the branch is to be disabled: the budget is used up, and it takes more than its part of it."""
        at = now()
        since = at - marks.get((id(code), offset), begun)
        marks[id(code), offset] = at
        rest = min(most, budget[0] + (at - budget[1]) * share) - every
        budget[:] = max(0, rest), at
        if rest >= 0 or since * share >= every * len(marks):
            return False
        told[id(code), offset] = True
        # The interpreter looks for new lines where one begins, also after it has told of all of them.
        ran = lines[id(code)]
        for _, _, line in code.co_lines():
            if line is not None and line not in ran and line != code.co_firstlineno:
                return True
        if get_tool(tool) == name:
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
        ring=ring,
        hot=hot,
        id=id,
        now=time_ns,
        rest=JUDGED_EVERY - 1,
        disable=monitoring.DISABLE,
    ):
        slot = destination - 2 if destination - offset < 5 else offset + 1
        counts = outcomes[id(code)]
        count = counts[slot] + 1
        counts[slot] = count
        ring.push((code, slot, now()))
        return disable if not count & rest and hot(code, offset) else None

    return decide, line, branch
