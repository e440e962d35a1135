"""Ranks wait for store keys, and who should have set them is known: each rank sets its own, and the store says whose
are missing; or those who went the other way set them, and are past it."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, holds, text_of, walk
from hangdoc.model.process import Frame


def own_setting(sources: Sources) -> Frame | None:
    """The only line that sets keys whose names are put together, where every rank sets its own there.

    In a loop over ranks one sets the keys of all: `for r in range(world): ⏎ store.set(f"go/{r}", "1")`.
    """
    found: dict[Frame, bool] = {}
    for file, tree in sources.user_trees():
        for call in (node for node in walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1):
            setter = isinstance(call.func, ast.Attribute) and call.func.attr in names("store_setter")
            if setter and not isinstance(call.args[0], ast.Constant):
                where = Frame(file, call.lineno, function_name(tree, call.lineno))
                found[where] = found.get(where, True) and not _goes_over_ranks(tree, call.lineno)
    lines = {(frame.file, frame.line) for frame in found}
    only: Frame | None = next(iter(found)) if len(lines) == 1 and all(found.values()) else None
    trees = [tree for file in sources.files() for _, tree in sources.trees(file)] if only is not None else []
    called = [(tree, line) for tree in trees if only is not None for line in calls_of(tree, only.function)]
    return None if any(_goes_over_ranks(tree, line) for tree, line in called) else only


def _goes_over_ranks(tree: ast.AST, line: int) -> bool:
    function = enclosing_function(tree, line)
    loops = (node for node in walk(function) if isinstance(node, ast.For) and holds(node, line))
    return any(_is_over_ranks(loop.target, loop.iter) for loop in loops)


def _is_over_ranks(target: ast.expr, items: ast.expr) -> bool:
    return pattern("all_ranks").search(f"{text_of(target)} in {text_of(items)}") is not None
