"""A flight recorder for control flow: how the branches of the program came out. CPython 3.12 and 3.13.

``sys.monitoring`` tells of each code object once that it is called. In the user's, and in the loops of frameworks that
drive it, it then tells of every branch, and of every line once; of all other code nothing more. Of each branch the
outcomes are counted; the newest of the main thread are kept with their times, and those of all other threads. As busy
branches drive out the rare ones, the newest outcomes of each of these are kept as well: of whatever the ring has fewer.

Rings are deques of tuples: flat buffers of integers take 90 ns more an event (3.12.1), and a lookup in thread-local
state, for a ring of each thread, 40 ns more than asking for the thread.

An exception that a signal or another thread raises in the callbacks is meant for the user's code, and goes on to it. So
nothing in them may raise by itself. CPython takes what the callback of a branch raises past all handlers of the
function that the branch is in, those of `with` and `finally` too (3.12.1, 3.13.0): it is handed on with the next
instruction. Callbacks reach all they need by their defaults, as a module's globals go before the last code of the
program has run.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident
from collections import deque
from opcode import opmap
from time import process_time_ns, time_ns

from hangdoc_probe_caught import catch, find_catching

VERSIONS = ((3, 12), (3, 13))
NAME = "hangdoc"
TOOLS = (3, 4)  # ids that no kind of tool has of its own (PEP 669)

# What it may cost. Judgement.
EVENT_NS = 350  # measured: some 300
RARE_NS = 1000  # of one that is kept by itself
CAUGHT_NS = 2500  # of an exception that is caught
SHARE = 0.0028  # of a rank's CPU time, and the rest at once: 0.5 % over ten seconds
RARE_SHARE = 0.0007  # more, to keep what comes rarely
MOST_AT_ONCE_NS, MOST_RARE_AT_ONCE_NS = 12_000_000, 3_000_000
JUDGED_EVERY = 64  # outcomes of a branch; a power of two
MOST_CODES = 4000  # a program of the user's has some hundred
MOST_TYPED_IN = 100  # of these, code without a file: exec makes new code each time
MOST_BYTES = 1 << 19  # of bytecode; each takes 9 bytes of counts and of what was there before
RING, RING_OF_OTHERS = 4000, 2000  # outcomes of the main thread, and of the others: 150 bytes each
OF_A_WAY, MOST_WAYS = 16, 800  # the newest outcomes of a way of a branch that comes rarely: 2 MB
RARELY = 40  # a count has so many bits; beyond are those that were kept by themselves
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
        self.outcomes = {}  # how often each branch came out in each way, by ``slot``; for ``times``
        # (id, slot) → the newest outcomes where they come rarely; where the ring has more, the time of one of them.
        self.newest = {}
        self.catching = {}  # the offsets of branches that come by only with an exception
        self.catching_all = {}  # line of an `except:` → its offset, at which it is counted as a branch
        self.caught = {}  # (id, slot) → exceptions
        self.lines = {}  # those that have run since
        self.before = {}  # the bytecode, with the interpreter's own counters, as it was then
        self.hot = {}  # (id, offset) of branches that came too often, and are told of no more
        self.unlined = {}  # code whose new lines are told of no more: the interpreter's counters go on
        self.nested = {}  # code that has called itself, by whatever way
        self.main = threading.main_thread().ident
        self.arrived = {}  # thread → an exception that is handed on with its next instruction
        self.rings = deque(maxlen=RING), deque(maxlen=RING_OF_OTHERS)  # of the main thread, and of all others
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
        decide, line, branch, hand_on = _callbacks(self, self.tool)
        if not _without_a_check(branch):
            self.stop()
            self.why = "this Python's functions begin in another way"
            return
        hide(catch, find_catching)
        for event, callback in (
            (events.PY_START, decide),
            (events.PY_RESUME, decide),
            (events.LINE, line),
            (events.BRANCH, branch),
            (events.INSTRUCTION, hand_on),
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
            for event in ("PY_START", "PY_RESUME", "LINE", "BRANCH", "INSTRUCTION"):
                monitoring.register_callback(tool, getattr(monitoring.events, event), None)
            for code in list(self.codes.values()):
                monitoring.set_local_events(tool, code, 0)
            monitoring.free_tool_id(tool)
        except Exception:  # the exit goes on, and the fork
            return


def times(count):
    """How often it was, of what is in ``outcomes``."""
    return (count >> RARELY) + (count & (1 << RARELY) - 1)


def slot(offset, destination):
    """Where a branch's outcome is counted: each way has a place of its own among those of its instruction.

    Without a jump it goes on 2 or 4 bytes further, and one may jump just over one instruction.
    """
    return destination - 2 if destination - offset < 5 else offset + 1


def _without_a_check(function):
    """Have no signal handled where the function begins, before its ``try``; False if that is not to be had.

    CPython looks for signals there, but not where a generator goes on in what it delegates to, which is said by the
    instruction's argument.
    """
    code = function.__code__
    begins = code.co_code[:2] == bytes((opmap["RESUME"], 0))
    if begins:
        function.__code__ = code.replace(co_code=bytes((opmap["RESUME"], 2)) + code.co_code[2:])
    return begins


def _callbacks(state, tool):
    """(of a call, of a line, of a branch, of an instruction)"""
    monitoring = sys.monitoring
    events, branches = monitoring.events.LINE | monitoring.events.BRANCH, monitoring.events.BRANCH
    chosen, left = {}, [MOST_CODES, MOST_TYPED_IN, MOST_BYTES, MOST_WAYS]
    budget, marks = [MOST_AT_ONCE_NS, process_time_ns()], {}
    begun = budget[1]
    of_rare = [MOST_RARE_AT_ONCE_NS, begun]

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
        find_catching=find_catching,
        state=state,
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
        if code.co_exceptiontable:
            find_catching(state, key, code)
        set_local_events(tool, code, events)
        watched[key] = True
        left[0] -= 1
        left[1] -= code.co_filename[:1] == "<"
        left[2] -= len(bytecode)

    def judge(
        code,
        offset,
        entry,
        count,
        budget=budget,
        marks=marks,
        begun=begun,
        left=left,
        of_a_way=OF_A_WAY,
        outcomes=state.outcomes,
        newest=state.newest,
        rings=state.rings,
        catching=state.catching,
        catch=catch,
        state=state,
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
        every=JUDGED_EVERY,
        event_ns=JUDGED_EVERY * EVENT_NS,
        caught_ns=JUDGED_EVERY * CAUGHT_NS,
        of_rare=of_rare,
        rare_ns=RARE_NS,
        rare_share=RARE_SHARE,
        rare_most=MOST_RARE_AT_ONCE_NS,
        share=SHARE,
        most=MOST_AT_ONCE_NS,
        deepest=DEEPEST,
        rarely=RARELY,
        once=1 << RARELY,
        id=id,
        len=len,
        min=min,
        max=max,
        type=type,
        list=list,
    ):
        """True if the branch is to be disabled: the budget is used up, and it takes more than its part of it.

        What comes rarely is judged each time: of its count, the part that says when is not gone on with.
        """
        key = id(code)
        way = key, entry[1]
        kept, cost = newest.get(way), event_ns
        if key in catching and offset in catching[key]:
            catch(state, entry)
            outcomes[key][entry[1]] = count - 1 + once
            if (count >> rarely) + 1 & every - 1:
                return False
            cost = caught_ns
        elif count == 1:
            if left[3] > 0:
                left[3] -= 1
                newest[way] = [entry]
                outcomes[key][entry[1]] = once
            # That which ends a recursion comes out so first where it is deepest.
            frame = None if key in nested else getframe(2).f_back
            while frame is not None and deepest:
                if frame.f_code is code:
                    nested[key] = True
                    break
                frame, deepest = frame.f_back, deepest - 1
            return False
        elif type(kept) is list:
            of_rare[0] -= rare_ns
            if of_rare[0] < 0:
                at = now()
                of_rare[:] = min(rare_most, (at - of_rare[1]) * rare_share), at
            number = count >> rarely
            oldest = kept[number % of_a_way] if len(kept) == of_a_way else None
            in_ring = oldest is not None and number > every and oldest[2] > rings[len(entry) > 3][0][2]
            if in_ring or of_rare[0] < rare_ns:
                newest[way] = entry[2]
                outcomes[key][entry[1]] = number + (count & once - 1)
                return False
            if oldest is None:
                kept.append(entry)
            else:
                kept[number % of_a_way] = entry
            outcomes[key][entry[1]] = count - 1 + once
            return False
        elif kept is not None:
            if kept < rings[len(entry) > 3][0][2]:
                newest[way] = [entry]
                outcomes[key][entry[1]] = count - 1 + once
            else:
                newest[way] = entry[2]
        at = now()
        since = at - marks.get((key, offset), begun)
        marks[key, offset] = at
        rest = min(most, budget[0] + (at - budget[1]) * share) - cost
        budget[:] = max(0, rest), at
        if rest >= 0 or since * share >= cost * len(marks):
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

    def line(
        code,
        number,
        lines=state.lines,
        catching_all=state.catching_all,
        outcomes=state.outcomes,
        judge=judge,
        get_ident=get_ident,
        now=time_ns,
        id=id,
        disable=monitoring.DISABLE,
    ):
        key = id(code)
        lines[key].add(number)
        if key not in catching_all or number not in catching_all[key]:
            return disable
        offset = catching_all[key][number]
        count = outcomes[key][offset + 1] + 1
        outcomes[key][offset + 1] = count
        return disable if judge(code, offset, (code, offset + 1, now(), get_ident()), count) else None

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
        arrived=state.arrived,
        anything=BaseException,
        tool=tool,
        get_local_events=monitoring.get_local_events,
        set_local_events=monitoring.set_local_events,
        instruction=monitoring.events.INSTRUCTION,
    ):
        try:
            slot = destination - 2 if destination - offset < 5 else offset + 1
            counts = outcomes[id(code)]
            count = counts[slot] + 1
            counts[slot] = count
            if get_ident() == main:
                entry = code, slot, now()
                of_main(entry)
            else:
                entry = code, slot, now(), get_ident()
                of_others(entry)
            return disable if count & rest == 1 and judge(code, offset, entry, count) else None
        except anything as error:
            arrived[get_ident()] = error
            set_local_events(tool, code, get_local_events(tool, code) | instruction)

    def hand_on(
        code,
        _offset,
        arrived=state.arrived,
        get_ident=get_ident,
        tool=tool,
        get_local_events=monitoring.get_local_events,
        set_local_events=monitoring.set_local_events,
        others=~monitoring.events.INSTRUCTION,
    ):
        if get_ident() in arrived:
            set_local_events(tool, code, get_local_events(tool, code) & others)
            raise arrived.pop(get_ident())

    return decide, line, branch, hand_on
