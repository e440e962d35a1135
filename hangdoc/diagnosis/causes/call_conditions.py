"""The conditions under which a call runs that was not seen to run, and the call by which a program starts its ranks."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import function_name, last_name
from hangdoc.diagnosis.state.unseen import started_by_program
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_MAIN = "__name__"


def conditions_of_call(
    sources: Sources, call: Frame, stack: Stack, kinds: tuple[str, ...] = CONDITIONS
) -> list[Condition]:
    """The conditions around the call: in its function, or else around the only call of that function; without those
    that ``stack`` has passed."""
    trees = [(frame, sources.function(frame.file, frame.line)) for frame in user_stack(stack)]
    known = {guard.place for frame, tree in trees if tree is not None for guard in guards(tree, frame.line)}
    lines = [(call.file, call.line)]
    for file in sources.files():
        calls = {line for _, tree in sources.trees(file) for line in calls_of(tree, call.function)}
        lines += [(file, line) for line in sorted(calls)]
    for file, line in lines:
        tree = sources.function(file, line)
        around = guards(tree, line) if tree is not None else []
        found = [cited(g, file) for g in around if g.kind in kinds and g.place not in known and _MAIN not in g.names]
        if found:
            return found[-2:]
    return []


def start_of_ranks(case: Case) -> tuple[Frame, list[Condition]] | None:
    """(the line at which the program starts a rank, the conditions or else the loop under which it does); None where
    no program of the user's started them, or its source has several such lines or none.

    Example: `for part in parts: ⏎ if not part.files: ⏎ continue ⏎ Process(target=train, args=(part,)).start()` → the
    fourth line, and `if not part.files:`.
    """
    launcher = started_by_program(case.job)
    main = launcher.last.main if launcher is not None and launcher.last is not None else None
    stack = user_stack(main.frames) if main is not None else ()
    files = {frame.file for frame in stack}
    calls = case.sources.user_calls(*names("starts_rank"), "start")
    found = {
        Frame(each.file, each.call.lineno, function_name(each.function, each.call.lineno)): last_name(each.call.func)
        for each in calls
        if each.file in files and (last_name(each.call.func) != "start" or not _has_arguments(each.call))
    }
    # `Process(…)` comes before the `.start()` of what it makes, which a class of the program's own alone has.
    made = [frame for frame, name in found.items() if name != "start"] or list(found)
    if len(made) != 1:
        return None
    conditions = [
        each
        for each in conditions_of_call(case.sources, made[0], stack)
        if not pattern("same_everywhere").search(each.source)
    ]
    return made[0], conditions or conditions_of_call(case.sources, made[0], stack, ("loop",))[-1:]


def _has_arguments(call: ast.Call) -> bool:
    return bool(call.args or call.keywords)
