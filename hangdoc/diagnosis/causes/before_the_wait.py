"""Of the lines that would end a wait: those that have run when what is waited on was made, and those that only the
waiting thread comes to, later."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, function_name, holds, last_name, walk
from hangdoc.model.process import Frame, Stack


def is_at_the_start(sources: Sources, at: Frame, name: str) -> bool:
    """True if the line belongs to what makes the object and is reached under no condition: that call was made, and
    did not end the wait. Example: `self.flushed = threading.Event() ⏎ self.flushed.set()` in `__init__`."""
    tree = sources.function(at.file, at.line)
    function = enclosing_function(tree, at.line) if tree is not None else None
    if function is None or any(guard.kind in CONDITIONS for guard in guards(function, at.line)):
        return False
    last = name.rpartition(".")[2]
    sets = (node for node in walk(function) if isinstance(node, ast.Assign | ast.AnnAssign))
    made = [node for node in sets if isinstance(node.value, ast.Call) and node.lineno < at.line]
    targets = [t for node in made for t in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return any(last_name(each) == last for each in targets)


def is_ahead(sources: Sources, at: Frame, stack: Stack) -> bool:
    """True if only the waiting thread comes to the line, later: it does not end its own wait.

    Example: `cv.notify_all()` in `close()`, which `main()` calls after the loop in which it waits.
    """
    own = user_stack(stack)
    if not own or own[-1].function != "<module>":
        return False  # other threads may run the same functions
    lines = [at]
    if not any(same_function(at, frame) for frame in own):
        lines = [
            Frame(file, line, function_name(tree, line))
            for file, tree in sources.user_trees()
            for line in calls_of(tree, at.function)
        ]
    return bool(lines) and all(any(_follows(sources, line, frame) for frame in own) for line in lines)


def _follows(sources: Sources, line: Frame, frame: Frame) -> bool:
    """True if the line comes after the frame's in the same function, and no loop leads from it back."""
    if not same_function(line, frame) or line.line is None or frame.line is None or line.line <= frame.line:
        return False
    tree = sources.function(frame.file, frame.line)
    loops = (node for node in walk(tree) if isinstance(node, LOOPS)) if tree is not None else ()
    return not any(holds(loop, frame.line) and holds(loop, line.line) for loop in loops)
