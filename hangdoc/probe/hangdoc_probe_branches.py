"""A flight recorder for control flow: how the branches of the program came out. CPython 3.12 to 3.14.

``sys.monitoring`` tells of the first call of each code object of the user's, and of the loops of frameworks that drive
it (``hangdoc_probe_found``), and then of every branch in it, and of every line once; of all other code nothing. Of each
branch the outcomes are counted; the newest of the main thread are kept with their times, and those of all other
threads. As busy branches drive out the rare ones, the newest outcomes of each of these are kept as well: of whatever
the ring has fewer (``hangdoc_probe_budget``).

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
from time import time_ns

from hangdoc_probe_budget import judge_of
from hangdoc_probe_caught import catch, find_catching
from hangdoc_probe_found import callbacks, chooser, look_around

VERSIONS = ((3, 12), (3, 13), (3, 14))
NAME = "hangdoc"
# A branch that does not jump goes on less than so many bytes further: over its cache, and from 3.14 on over NOT_TAKEN.
NEAR = 7 if "NOT_TAKEN" in opmap else 5
TOOLS = (3, 4)  # ids that no kind of tool has of its own (PEP 669)

# Judgement.
MOST_CODES = 4000  # a program of the user's has some hundred
MOST_BYTES = 1 << 19  # of bytecode; each takes 8 bytes of counts
RING, RING_OF_OTHERS = 4000, 2000  # outcomes of the main thread, and of the others: 150 bytes each
JUMPS = {number for name, number in opmap.items() if name.startswith("POP_JUMP_IF") or name == "FOR_ITER"}


class Branches:
    """What is known of this process. By the ids of code objects, which are kept: hashing one takes 400 ns."""

    def __init__(self, roots):
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)
        self.codes = {}
        self.asked = {}  # of libraries: they tell of code of the program
        self.watched = {}  # those that have been called, and of which the events come
        self.outcomes = {}  # how often each branch came out in each way, by ``slot``; for ``times``
        # (id, slot) → the newest outcomes where they come rarely; where the ring has more, the time of one of them.
        self.newest = {}
        self.catching = {}  # the offsets of branches that come by only with an exception
        self.catching_all = {}  # line of an `except:` → its offset, at which it is counted as a branch
        self.caught = {}  # (id, slot) → exceptions
        self.lines = {}  # those that have run since
        self.before = {}  # the bytecode, with the interpreter's own counters, as it was first known
        self.hot = {}  # (id, offset) of branches that came too often, and are told of no more
        self.unlined = {}  # code whose new lines are told of no more: the interpreter's counters go on
        self.straight = {}  # code without a branch → its lines
        self.nested = {}  # code that has called itself, by whatever way
        self.main = threading.main_thread().ident
        self.arrived = {}  # thread → an exception that is handed on with its next instruction
        self.callbacks = {}
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
        judge = judge_of(self, self.tool, NAME)
        first, line, branch, hand_on, keep = _callbacks(self, self.tool, judge)
        chooses = chooser(self.roots)
        listen, ask, called, returned = callbacks(self, self.tool, NAME, chooses)
        if not (_without_a_check(branch) and _without_a_check(keep)):
            self.stop()
            self.why = "this Python's functions begin in another way"
            return
        self.callbacks = {
            events.PY_START: first,
            events.PY_RESUME: first,
            events.PY_RETURN: returned,
            events.CALL: called,
            events.LINE: line,
            events.BRANCH: branch,
            events.INSTRUCTION: hand_on,
        }
        hide(catch, find_catching)
        for event, callback in self.callbacks.items():
            hide(callback, *callback.__defaults__)
            monitoring.register_callback(self.tool, event, callback)
        hide(*listen.__defaults__)
        for code in look_around(chooses, listen, ask):
            if id(code) in self.codes:
                first(code, 0)

    def stop(self):
        """At exit, and in a forked child: it is no rank, or begins anew."""
        monitoring = sys.monitoring
        tool, self.tool = self.tool, None
        try:
            if tool is None or monitoring.get_tool(tool) != NAME:
                return
            for event in self.callbacks:
                monitoring.register_callback(tool, event, None)
            for code in [*self.codes.values(), *self.asked.values()]:
                monitoring.set_local_events(tool, code, 0)
            monitoring.free_tool_id(tool)
        except Exception:  # the exit goes on, and the fork
            return


def slot(offset, destination):
    """Where a branch's outcome is counted: each way has a place of its own among those of its instruction.

    Without a jump it goes on 2, 4 or 6 bytes further, and one may jump just over one instruction.
    """
    return destination - 2 if destination - offset < NEAR else offset + 1


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


def _callbacks(state, tool, judge):
    """(of a first call, of a line, of a branch, of an instruction, what keeps an exception until the latter)"""
    monitoring = sys.monitoring

    def watch(
        code,
        watched=state.watched,
        left=[MOST_CODES, MOST_BYTES],  # noqa: B006 - of this recorder
        tool=tool,
        name=NAME,
        events=monitoring.events.LINE | monitoring.events.BRANCH,
        calls=monitoring.events.CALL,
        running=("exec", "eval"),
        codes=state.codes,
        before=state.before,
        outcomes=state.outcomes,
        lines=state.lines,
        straight=state.straight,
        jumps=JUMPS,
        resume=opmap["RESUME"],
        find_catching=find_catching,
        state=state,
        get_tool=monitoring.get_tool,
        set_local_events=monitoring.set_local_events,
        id=id,
        len=len,
        set=set,
    ):
        key, bytecode = id(code), code._co_code_adaptive
        if get_tool(tool) != name:
            return
        if left[0] <= 0 or left[1] < len(bytecode):
            before.pop(key, None)
            set_local_events(tool, code, 0)
            return
        # May be interrupted anywhere, and is called again then. A code object that is kept keeps its id.
        codes.setdefault(key, code)
        before.setdefault(key, bytecode)
        outcomes.setdefault(key, [0] * (len(bytecode) + 2))
        lines.setdefault(key, set())
        if code.co_exceptiontable:
            find_catching(state, key, code)
        else:
            plain = code.co_code
            for jump in jumps:
                if jump in plain:
                    break
            else:
                begins = plain.find(resume)
                straight[key] = {line for start, _, line in code.co_lines() if line and start > begins}
        wanted = events
        for each in running:
            if each in code.co_names:
                wanted |= calls
        set_local_events(tool, code, wanted)
        watched[key] = True
        left[0] -= 1
        left[1] -= len(bytecode)

    def first(code, _offset, watched=state.watched, watch=watch, id=id, disable=monitoring.DISABLE):
        if id(code) not in watched:
            watch(code)
        return disable

    def line(
        code,
        number,
        lines=state.lines,
        catching_all=state.catching_all,
        straight=state.straight,
        outcomes=state.outcomes,
        judge=judge,
        tool=tool,
        name=NAME,
        others=~monitoring.events.LINE,
        get_ident=get_ident,
        get_tool=monitoring.get_tool,
        get_local_events=monitoring.get_local_events,
        set_local_events=monitoring.set_local_events,
        now=time_ns,
        id=id,
        disable=monitoring.DISABLE,
    ):
        key = id(code)
        seen = lines[key]
        seen.add(number)
        if key in straight and seen >= straight[key] and get_tool(tool) == name:
            # All is known of it. What looks for new lines takes 5 % of a loop, and goes on where they are disabled.
            set_local_events(tool, code, get_local_events(tool, code) & others)
            return None
        if key not in catching_all or number not in catching_all[key]:
            return disable
        offset = catching_all[key][number]
        count = outcomes[key][offset + 1] + 1
        outcomes[key][offset + 1] = count
        return judge(code, offset, (code, offset + 1, now(), get_ident()), count)

    def keep(
        code,
        exception=sys.exception,
        arrived=state.arrived,
        get_ident=get_ident,
        tool=tool,
        get_local_events=monitoring.get_local_events,
        set_local_events=monitoring.set_local_events,
        instruction=monitoring.events.INSTRUCTION,
    ):
        arrived[get_ident()] = exception()
        set_local_events(tool, code, get_local_events(tool, code) | instruction)

    # Defaults are copied in each call: it has few. What comes after each 64 outcomes is ``JUDGED_EVERY``.
    def branch(
        code,
        offset,
        destination,
        outcomes=state.outcomes,
        main=state.main,
        of_main=state.rings[0].append,
        of_others=state.rings[1].append,
        judge=judge,
        keep=keep,
        get_ident=get_ident,
        id=id,
        now=time_ns,
        near=NEAR,
    ):
        try:
            slot = destination - 2 if destination - offset < near else offset + 1
            counts = outcomes[id(code)]
            count = counts[slot] + 1
            counts[slot] = count
            if get_ident() == main:
                entry = code, slot, now()
                of_main(entry)
            else:
                entry = code, slot, now(), get_ident()
                of_others(entry)
            return judge(code, offset, entry, count) if count & 63 == 1 else None
        except:  # noqa: E722 - whatever was meant for the program
            keep(code)

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

    return first, line, branch, hand_on, keep
