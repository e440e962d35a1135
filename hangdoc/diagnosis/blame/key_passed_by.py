"""Ranks wait for store keys that a line sets to which other ranks alone come, and which a condition leads past.

Example: ranks 2 and 3 wait for room/19 and room/22; of all lines that set keys, only `self.post(f"room/{r.id}", …)`
can be gone past, by `if len(r.tokens) > most: ⏎ continue`, and rank 1 alone has ever run it → rank 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import calls_of, store_sets
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks, is_past_setting
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class KeyPassedBy(Explanation):
    """The culprits alone come to the line that sets keys for the ranks that wait, and ``test`` leads past it."""

    waiting: tuple[int, ...]
    set_at: Frame
    test: Condition


def key_passed_by(case: Case) -> Blame[KeyPassedBy] | None:
    """The blame of those ranks; None where the source has several such lines or none, or where the interpreters'
    counters do not tell who has run it."""
    waiting = tuple(r for r, activity in sorted(case.activities.items()) if waits_for_a_key(activity))
    if not waiting or case.hidden or not case.table or free_ranks(case.activities):
        return None  # who is free may end the wait of those that set keys, and these come there again
    lines = {(at.file, at.line): (at, test) for at, test in _skippable(case.sources)}
    if len(lines) != 1:
        return None
    ((at, test),) = lines.values()
    setting = case.table.split(sorted(case.seen), at.file, at.line).ran
    free = any(not is_past_setting(case.activities[rank], case.sources) for rank in setting)
    if not setting or free or case.table.split(waiting, at.file, at.line).never != waiting:
        return None
    sure = f"{ranks_text(setting)} alone {'has' if len(setting) == 1 else 'have'} ever come to the line that sets one"
    return Blame(KeyPassedBy(waiting, at, test), setting, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _skippable(sources: Sources) -> Iterator[tuple[Frame, Condition]]:
    """(line, condition) of the calls that set a key, themselves or by the function of the program's that they call,
    where a condition that is none on the rank leads past them in their own function."""
    wrappers = {name for file, tree in sources.user_trees() for name in _setting_what_they_get(tree)}
    for file, tree in sources.user_trees():
        lines = {*store_sets(tree), *(line for name in wrappers for line in calls_of(tree, name))}
        for line in sorted(lines):
            function = enclosing_function(tree, line)
            around = [g for g in guards(tree, line) if g.kind in CONDITIONS and not any(map(is_rank_name, g.names))]
            around = [g for g in around if g.names and "__name__" not in g.names]
            if around:
                yield (
                    Frame(file, line, getattr(function, "name", "<module>")),
                    Condition(around[-1].condition, file, around[-1].line),
                )


def _setting_what_they_get(tree: ast.AST) -> Iterator[str]:
    """The functions that set a key which they are given: 'post' of `def post(key, x): ⏎ store.set(key, x)`."""
    for node in walk(tree):
        lines = set(store_sets(node)) if isinstance(node, ast.FunctionDef) else set()
        if isinstance(node, ast.FunctionDef) and lines:
            given = {each.arg for each in (*node.args.posonlyargs, *node.args.args)}
            calls = [n for n in walk(node) if isinstance(n, ast.Call) and n.lineno in lines and n.args]
            if any(isinstance(name, ast.Name) and name.id in given for call in calls for name in walk(call.args[0])):
                yield node.name
