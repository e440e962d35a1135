"""The collective behind which a device waits, where no journal shows it: the one last issued before that line.

On a device a call returns at once, and its rank stands further on, at the first line that needs a result.
"""

from __future__ import annotations

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name
from hangdoc.model.operations import names_met_by_all
from hangdoc.model.process import Frame, Stack


def call_behind(sources: Sources, stack: Stack) -> str:
    """The operation of the last call before the stack's innermost user line, in its function, that all ranks meet in
    and that no condition leads around; '' where there is none.

    Examples: `dist.all_reduce(total)`, and the rank waits at `total.item()` two lines below → 'all_reduce'; the same in
    an `if` that ends between them → ''; `for x in batches: ⏎ model(x).backward()`, and then the wait → 'backward', if
    the program wraps a model for all ranks.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return ""
    around, function = guards(tree, where.line), enclosing_function(tree, where.line)
    wrapped = sources.user_calls(*names("wraps_model"))
    calls = sources.user_calls(*names_met_by_all(), *(names("called_on_loss") if wrapped else ()))
    passed = [
        each
        for each in calls
        if _is_before(each, where, getattr(function, "lineno", 0))
        and all(guard in around or guard.kind == "loop" for guard in guards(tree, each.call.lineno))
    ]
    last = max(passed, key=lambda each: (each.call.lineno, each.call.col_offset), default=None)
    return last_name(last.call.func) if last is not None else ""


def _is_before(call: UserCall, where: Frame, function: int) -> bool:
    """True if the call is on that line or above it, in the function that begins at the line ``function``."""
    same = call.file == where.file and getattr(call.function, "lineno", 0) == function
    return same and call.call.lineno <= where.line
