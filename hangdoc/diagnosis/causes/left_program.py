"""HD101 of a rank that has left the program early and is still exiting: the others wait in a call that it skipped."""

from __future__ import annotations

import ast
from itertools import takewhile

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import leaves_for_good
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack


def early_end(case: Case, blame: Blame[Explanation]) -> Condition | None:
    """The only condition under which a rank returns from the functions that all others are in, or ends its process
    there; None where there are several.

    Example: `if not mine: ⏎ return` in the loop of run(), in which the others poll. Of ranks whose calls were seen, it
    lies between the last call that the ended rank made and the line where the others wait.
    """
    ways = [tuple(reversed(user_stack(case.activities[rank].stack))) for rank in others_of(case, blame)]
    if blame.diverged is not None and blame.diverged.branch_points:
        return None
    last: Stack | None = None
    if case.programs:
        program = case.programs.get(blame.culprits[0])
        last = program.tokens[-1].stack if program is not None and program.tokens else ()
        ways.append(tuple(reversed(user_stack(last))))
    shared = takewhile(lambda frames: all(same_function(frames[0], each) for each in frames), zip(*ways, strict=False))
    found = {}
    for frame, *more in shared:
        tree = case.sources.function(frame.file, frame.line)
        if tree is None:
            continue
        around = guards(tree, frame.line)
        since = more[-1].line if last is not None and not any(g.kind == "loop" for g in around) else 0
        for guard in around:
            if guard.kind == "return" and guard.line > since and leaves_for_good(tree, guard.line):
                found[frame.file, guard.line] = cited(guard, frame.file)
    early = next(iter(found.values())) if len(found) == 1 else None
    return early if early is not None and not _may_end_elsewhere(case, early) else None


def _may_end_elsewhere(case: Case, early: Condition) -> bool:
    """True if another function of the program ends the process, too: which of them did is not known. What the module
    itself ends with, as `sys.exit(main())`, is none of them."""
    tree = case.sources.function(early.file, early.line)
    here = enclosing_function(tree, early.line) if tree is not None else None
    ends = (call for name in names("exits_process") for call in case.sources.user_calls(name.rpartition(".")[2]))
    return any(
        dotted(end.call.func) in names("exits_process")
        and isinstance(end.function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (end.file, end.function.lineno) != (early.file, getattr(here, "lineno", 0))
        for end in ends
    )
