"""The conditions under which a call runs that was not seen to run, and the call by which a program starts its ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.causes.phrases import cited, place
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.program.items import Predicate, Span
from hangdoc.diagnosis.source.calls_between import requests
from hangdoc.diagnosis.source.evaluate import names_in
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, holds, last_name
from hangdoc.diagnosis.state.unseen import started_by_program
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame, Stack

_MAIN = "__name__"


def conditions_of_call(
    sources: Sources, call: Frame, stack: Stack, kinds: tuple[str, ...] = CONDITIONS
) -> list[Condition]:
    """The conditions around the call: in its function, or by which the loop around it leaves items out, or else around
    the calls of that function; without those that ``stack`` has passed."""
    for around in _around_call(sources, call, stack, kinds):
        if around:  # a test of the rank goes alike every time
            return sorted(around[-2:], key=lambda each: bool(pattern("rank_word").search(each.source)))
    return []


def _around_call(sources: Sources, call: Frame, stack: Stack, kinds: tuple[str, ...]) -> Iterator[list[Condition]]:
    """What is around the call, and then around each call of its function, without what ``stack`` has passed."""
    trees = [(frame, sources.function(frame.file, frame.line)) for frame in user_stack(stack)]
    known = {guard.place for frame, tree in trees if tree is not None for guard in guards(tree, frame.line)}
    lines = [(call.file, call.line)]
    for file in sources.files():
        calls = {line for _, tree in sources.trees(file) for line in calls_of(tree, call.function)}
        lines += [(file, line) for line in sorted(calls)]
    for file, line in (*lines, *_requested_at(sources, lines)):
        tree = sources.function(file, line)
        around = guards(tree, line) if tree is not None else []
        yield [cited(g, file) for g in around if g.kind in kinds and g.place not in known and _MAIN not in g.names]


def _requested_at(sources: Sources, lines: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The lines at which other ranks call the functions around these lines.

    Example: `def post(x): ⏎ box.add(x)`, and `rpc.rpc_sync("learner", post, args=(x,))` → the latter's line.
    """
    asking = requests(sources)
    for file, line in lines if asking else ():
        tree = sources.function(file, line)
        for at in asking.get(function_name(tree, line), ()) if tree is not None else ():
            yield at.file, at.line


def may_differ(sources: Sources, at: Frame, condition: Condition) -> bool:
    """False for a test of the rank around a call of the function that holds the line: it goes alike every time."""
    tree = sources.function(at.file, at.line)
    function = enclosing_function(tree, at.line) if tree is not None else None
    within = condition.file == at.file and function is not None and holds(function, condition.line)
    return within or not pattern("rank_word").search(condition.source)


def started_under(sources: Sources, at: Frame, stack: Stack) -> list[Condition]:
    """The conditions under which the thread, child or task is started that runs the function around the line."""
    for each in sources.user_calls(*names("starts_work")):
        given = [*each.call.args, *(keyword.value for keyword in each.call.keywords)]
        given = [part.func if isinstance(part, ast.Call) else part for part in given]
        if at.function and any(last_name(part) == at.function for part in given):
            line = each.at
            return conditions_of_call(sources, line, stack)
    return []


@dataclass(frozen=True, slots=True)
class Start:
    """The program starts ranks ``at`` that line. ``under``: the conditions or else the loop around it, or, where one
    call starts ``several``, what decides how many."""

    at: Frame
    under: list[Condition]
    several: bool = False

    @property
    def text(self) -> Message:
        """'the program starts its ranks at run.py:9, and `if d.idle()` (run.py:7) decides how many'."""
        what, which = ("its ranks", "how many") if self.several else ("a rank", "which")
        decided: Message = [", and ", Joined(self.under, " and "), f" decides {which}"] if self.under else ""
        return [f"the program starts {what} at ", place(self.at), decided]


def start_of_ranks(case: Case) -> Start | None:
    """Where the program starts its ranks; None where no program of the user's started them, or its source has several
    such lines or none.

    Examples: `for part in parts: ⏎ if not part.files: ⏎ continue ⏎ Process(target=train, args=(part,)).start()` → the
    fourth line, under `if not part.files:`; `free = [d for d in devices if d.idle()] ⏎ spawn(train, nprocs=len(free))`
    → the second line, by `if d.idle()`.
    """
    launcher = started_by_program(case.job)
    main = launcher.last.main if launcher is not None and launcher.last is not None else None
    stack = user_stack(main.frames) if main is not None else ()
    files = {frame.file for frame in stack}
    calls = case.sources.user_calls(*names("starts_rank"), "start")
    found = {
        Frame(each.file, each.call.lineno, function_name(each.function, each.call.lineno)): each
        for each in calls
        if each.file in files and (last_name(each.call.func) != "start" or not _has_arguments(each.call))
    }
    # `Process(…)` comes before the `.start()` of what it makes, which a class of the program's own alone has.
    made = [frame for frame, each in found.items() if last_name(each.call.func) != "start"] or list(found)
    if len(made) != 1:
        return None
    count = next((word.value for word in found[made[0]].call.keywords if word.arg in names("counts_ranks")), None)
    if count is not None:  # it has run, so nothing around it has kept a rank from its start
        return Start(made[0], _deciding_the_count(case, made[0], count), several=True)
    conditions = [
        each
        for each in conditions_of_call(case.sources, made[0], stack)
        if not pattern("same_everywhere").search(each.source)
    ]
    return Start(made[0], conditions or conditions_of_call(case.sources, made[0], stack, ("loop",))[-1:])


def _deciding_the_count(case: Case, at: Frame, count: ast.expr) -> list[Condition]:
    """The nearest test that the number depends on, by the slice of that expression; not what only led to the line, nor
    a loop or a handler, which leave nothing out by themselves."""
    span = Span(count.lineno, count.col_offset, count.end_lineno or count.lineno, count.end_col_offset or 0)
    function = case.program.function(at.file, at.line)
    led = {each for each, _ in function.controls(at.line)} if function is not None else set()
    found = (each.item for each in islice(case.program.slice_back(at.file, at.line, expression=span), COMPARED))
    tests = (each for each in found if isinstance(each, Predicate) and each.kind in _LEAVE_OUT and not each.targets)
    first = next((each for each in tests if each not in led and _MAIN not in names_in(each.subject)), None)
    return [Condition(f"if {first.text}", first.file, first.line)] if first is not None else []


_LEAVE_OUT = ("if", "comprehension")
"""Kinds of predicates that leave some items, or lines, out."""


def _has_arguments(call: ast.Call) -> bool:
    return bool(call.args or call.keywords)
