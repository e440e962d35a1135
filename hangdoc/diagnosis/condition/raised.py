"""The condition under which an exception was raised that led a rank away from the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.caught import Caught
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.queries import calls_in, raises
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name
from hangdoc.model.message import Condition

_DEEPEST = 4
"""Functions that call each other, followed this far from the body of a `try`; chosen by hand."""
_MOST_CALLED = 60
"""Functions that are looked into; chosen by hand."""
_MOST_RAISED = 2
"""Conditions; more of them are no reason any more. Chosen by hand."""
_ANY = {"Exception", "BaseException"}


def condition_of_raise(case: Case, ranks: tuple[int, ...]) -> BranchPoint | None:
    """The `if` whose `raise` the ranks are in an except or finally suite for; None where a call raised it, or they are
    in none.

    Example: `if x.isnan(): raise ValueError`, and rank 1 is in the `finally:` around its caller → that `if`.
    """
    for rank in ranks:
        journal = case.ranks[rank].journal if rank in case.ranks else None
        frame = next(iter(user_stack(journal.handled_at)), None) if journal is not None and journal.handled else None
        tree = case.sources.function(frame.file, frame.line) if frame is not None else None
        if frame is None or tree is None or journal is None or frame != journal.handled_at[0]:
            return None
        inner = next((g for g in reversed(guards(tree, frame.line)) if g.kind != "return"), None)
        if inner is None or inner.kind != "if" or not inner.taken or not raises(tree, inner.line):
            return None
        return BranchPoint(inner, frame.file, plain(frame.function), frame.line, 0, 0.0)
    return None


def raised_under(sources: Sources, caught: Caught) -> list[Condition]:
    """The conditions under which the user's code that the block calls raises what the handler catches; [] where it
    raises none of it, or in too many places.

    Example: `try: ⏎ self.handle(request) ⏎ except NoFreeBlocks:`, and handle() calls allocate(), which has `if need >
    len(self.free): ⏎ raise NoFreeBlocks(…)` → that `if`.
    """
    tree = sources.function(caught.frame.file, caught.frame.line)
    nodes = ast.walk(tree) if tree is not None else iter(())
    tried = next((n for n in nodes if isinstance(n, ast.Try) and n.lineno == caught.by.first), None)
    handler = next((h for h in tried.handlers if h.lineno == caught.by.line), None) if tried is not None else None
    if tried is None or handler is None or tree is None:
        return []
    given = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    types = _with_those_made_of(sources, {last_name(each) for each in given} or _ANY)
    own = [(caught.frame.file, tree, each) for each in tried.body]
    called = ((file, function, function) for file, function in _called_by(sources, tried.body))
    found: dict[Condition, None] = {}
    for file, within, block in (*own, *called):
        for node in ast.walk(block):
            if isinstance(node, ast.Raise) and node.exc is not None and _is_one_of(node.exc, types):
                inner: Guard | None = next((g for g in reversed(guards(within, node.lineno)) if g.kind == "if"), None)
                if inner is not None:
                    found[Condition(inner.condition, file, inner.line)] = None
    return list(found) if len(found) <= _MOST_RAISED else []


def _called_by(sources: Sources, body: list[ast.stmt]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The user's functions that the statements call by name, and those that these call."""
    seen: set[str] = set()
    blocks: list[list[ast.stmt]] = [body]
    for _ in range(_DEEPEST):
        called = {last_name(call.func) for block in blocks for call in calls_in(block)} - seen
        blocks = []
        for name in sorted(called)[:_MOST_CALLED]:
            for file, function in sources.user_functions(name):
                yield file, function
                blocks.append(function.body)
        seen |= called


def _is_one_of(raised: ast.expr, types: set[str]) -> bool:
    return bool(types & {last_name(raised.func if isinstance(raised, ast.Call) else raised), *_ANY})


def _with_those_made_of(sources: Sources, types: set[str]) -> set[str]:
    """The types, and the classes of the user's that are made of one of them."""
    made = (n for _, tree in sources.user_trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    return types | {each.name for each in made if types & set(map(last_name, each.bases))}
