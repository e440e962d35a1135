"""Waits that nobody alive can end: a child's queue that only the rank could read, a stop event that nobody sets.

Example: the rank is in ``child.join()``, and the child, at its end, waits for the thread that writes its queue into a
pipe. The rank has the other end, and would read it after the join.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, holds, walk
from hangdoc.diagnosis.state.process import is_moving
from hangdoc.model.process import Process, Thread


def unread_child(process: Process) -> Process | None:
    """The child that cannot end before its queue is read, where the rank waits for its end without a timeout.

    None where the rank has another thread or child that may read: all that were forked have the pipe's other end. A
    child that has ended reads nothing.
    """
    main = process.last.main if process.last is not None else None
    threads = process.last.threads[1:] if process.last is not None else ()
    living = [child for child in process.children if child.last is None or child.last.state not in ("Z", "X")]
    if main is None or main.wakes_in is not None or len(living) != 1:
        return None
    joins = any(is_in(frame, "process_file", "joins_process") for frame in main.frames)
    if not joins or is_moving(process) or any(t.frames and not _is_probe(t) for t in threads):
        return None
    (child,) = living
    own = child.last.main if child.last is not None else None
    if own is None or child.children or is_moving(child):
        return None
    leaves = any(is_in(frame, "process_queue_file", "joins_feeder") for frame in own.frames)
    feeds = any(_is_blocked_feeder(thread) for thread in (child.last.threads if child.last is not None else ()))
    return child if leaves and feeds else None


def _is_blocked_feeder(thread: Thread) -> bool:
    """True if the thread writes a queue's items into its pipe, which is full."""
    writes = "pipe_write" in (thread.wchan or "") and thread.state == "S"
    return writes and any(is_in(frame, "process_queue_file", "feeds_queue") for frame in thread.frames)


def never_stopped(process: Process, sources: Sources) -> Thread | None:
    """The thread that keeps a finished process alive in a loop which only an event ends that nobody will set.

    Its loop is `while not self.stopped.wait(…):` without another way out, the main thread is over, every other thread
    that runs Python is the probe's, and what the loop calls does not set the event. None where any of it is unsure.
    """
    look = process.last
    if look is None or look.main is None:
        return None
    if not any(is_in(frame, "threading_file", "joins_threads") for frame in look.main.frames):
        return None
    others = [thread for thread in look.threads if thread.tid != look.main.tid and not _is_probe(thread)]
    running = [thread for thread in others if thread.frames]
    if not running or any(_may_call_python(process, thread) for thread in others if not thread.frames):
        return None
    return running[0] if all(_loops_for_good(thread, sources) for thread in running) else None


def _may_call_python(process: Process, thread: Thread) -> bool:
    return not thread.name.startswith(names("threads_without_locks", of="native")) and thread.name != process.comm


def _is_probe(thread: Thread) -> bool:
    return bool(thread.frames) and thread.frames[-1].file.endswith("/hangdoc_probe_serve.py")


def _loops_for_good(thread: Thread, sources: Sources) -> bool:
    way = user_stack(thread.frames)
    if not way or not any(is_in(frame, "threading_file", "waits_for_event") for frame in thread.frames):
        return False
    tree, name = sources.function(way[0].file, way[0].line), receiver_of(way[0], "wait", sources)
    if tree is None or not name:
        return False
    loops = [n for n in walk(tree) if isinstance(n, ast.While) and n.test.lineno <= way[0].line <= _end(n.test)]
    if len(loops) != 1 or not _waits_in_test(loops[0].test, name):
        return False
    leaves = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
    if any(isinstance(node, leaves) for each in loops[0].body for node in walk(each)):
        return False
    places = places_of_methods(name, ("set",), sources)
    here = any(holds(loops[0], frame.line) and frame.file == way[0].file for frame in places)
    return not here and {plain(frame.function) for frame in places}.isdisjoint(_called(loops[0], sources, DEEPEST))


def _end(node: ast.expr) -> int:
    return node.end_lineno or node.lineno


def _waits_in_test(test: ast.expr, name: str) -> bool:
    """True for `not NAME.wait(…)` and nothing else."""
    call = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    return isinstance(call, ast.Call) and dotted(call.func) == f"{name}.wait"


def _called(node: ast.AST, sources: Sources, deep: int) -> set[str]:
    """The names of what the code calls, and of what the program's functions of these names call."""
    trees = [tree for file in sources.files() for _, tree in sources.trees(file)]
    functions = [n for tree in trees for n in walk(tree) if isinstance(n, ast.FunctionDef)]
    found = _called_directly(node)
    for _ in range(deep):
        found = found.union(*(_called_directly(each) for each in functions if each.name in found))
    return found


def _called_directly(node: ast.AST) -> set[str]:
    return {dotted(n.func).rpartition(".")[2] for n in walk(node) if isinstance(n, ast.Call)} - {""}
