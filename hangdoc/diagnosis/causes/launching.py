"""HD110: the ranks took different branches, because the launch came late.

Launchers that re-run the script (Lightning, Fabric) start the other ranks in the middle of rank 0's program: the code
before the launch runs first on rank 0 and later, when rank 0 has changed files or variables, on the others.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, cited, line_of, place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import assignments_beside, first_assigned_value, launches
from hangdoc.diagnosis.source.syntax import function_name
from hangdoc.model.message import Condition, Ranks, joined, sentence
from hangdoc.model.process import Frame, Stack


def rerun_by_rank_zero(case: Case) -> bool:
    """True if the other ranks are children of rank 0's process: only launchers that re-run the script do that."""
    main = case.ranks.get(0)
    children = [r.process for rank, r in case.ranks.items() if rank != 0 and r.process is not None]
    return (
        main is not None
        and main.process is not None
        and bool(children)
        and all(c.ppid == main.process.pid for c in children)
    )


def _launches_in_sources(case: Case) -> list[Stack]:
    """The places in the user's code that call a launch, of which no stack is left.

    Example: attached to a running job, whose launch has long returned → train.py:22 __init__().
    """
    calls = ((file, tree, line) for file, tree in case.sources.user_trees() for line in launches(tree))
    places = {(file, line): function_name(tree, line) for file, tree, line in calls}
    return [(Frame(file, line, function),) for (file, line), function in sorted(places.items())]


@cause("HD110", explains=Diverged, order=100)
def diverged_before_launch(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD110: the value by which the ranks diverged was set before the launch."""
    point, gap = blame.found.branch_point, blame.found.gap
    if gap is None or point is None or point.rank_like or gap.token.op == END:
        return None
    if not rerun_by_rank_zero(case):
        return None
    stacks = _launches_in_sources(case)
    found = ((before, stack[0]) for stack in stacks if (before := _set_before(case, blame, stack)) is not None)
    first = next(found, None)
    if first is None:
        return None
    (name, where, statement), launch = first
    others = others_of(case, blame)
    sides = (blame.culprits, others)
    here, there = sides[point.guarded], sides[1 - point.guarded]
    mine = call_at(gap.mine) if gap.mine else "nothing more"
    theirs = call_at(gap.theirs) if gap.theirs else "nothing more"
    taken = point.guard.taken
    return Finding(
        "HD110",
        joined(
            sentence([Ranks(blame.culprits), " called ", mine, ", ", Ranks(others), " ", theirs]),
            sentence(
                ["they took different branches: ", statement, " ran before the launch at ", place(launch)],
            ),
            between=" ",
        ),
        joined(
            [f"`{name}` was computed at ", line_of(where), ", before the launch at ", line_of(launch)],
            "the other ranks re-run the script later, when rank 0 may already have changed what it depends on",
            [
                [cited(point.guard, point.file), f" was {taken} on ", Ranks(here)],
                [f" and {not taken} on ", Ranks(there), " (inferred from the path taken)"],
            ],
        ),
        ["call launch() first in the program, before ", statement],
        _WHICH_LAUNCH if len(stacks) > 1 else "",
    )


_WHICH_LAUNCH = "which launch ran was not seen"


def _set_before(case: Case, blame: Blame[Diverged], frames: Stack) -> tuple[str, Frame, Condition] | None:
    """Which tested value was set on the way to the launch: (name, where, the assignment).

    Example: `if self.warm:` decided, and __init__ has `self.warm = cache.exists()` above `fabric.launch()` →
    ('self.warm', train.py:9 __init__, `self.warm = cache.exists()`).
    """
    for point in blame.found.branch_points:
        for name in point.guard.names:
            for frame in frames:
                line = _assigned_above(case, frame, name) if _shares_name(point, frame, name) else None
                if line is not None:
                    tree = case.sources.function(frame.file, frame.line)
                    text = (first_assigned_value(tree, line) if tree is not None else None) or name
                    return name, Frame(frame.file, line, frame.function), Condition(text, frame.file, line)
    return None


def _shares_name(point: BranchPoint, frame: Frame, name: str) -> bool:
    """True if ``name`` at the condition and in the frame's function may be one variable: an attribute, a global, or a
    local of the same function."""
    same_function = (frame.file, plain(frame.function)) == (point.file, point.function)
    return "." in name or same_function or frame.function == "<module>"


def _assigned_above(case: Case, frame: Frame, name: str) -> int | None:
    """The line above the frame's that assigned ``name``: one under no condition surely ran, of several the last."""
    tree = case.sources.function(frame.file, frame.line)
    if tree is None:
        return None
    lines = [line for line in assignments_beside(tree, frame.line, name) if line < frame.line]
    unconditional = [line for line in lines if not any(g.kind != "return" for g in guards(tree, line))]
    return next(reversed(unconditional or lines), None)
