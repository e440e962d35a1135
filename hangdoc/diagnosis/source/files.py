"""Files that a program makes, and loops that poll for them, as the source shows both."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, holds, last_name
from hangdoc.model.process import Frame

Asked = tuple[ast.Call, ast.AST, ast.AST]
"""A call that asks whether something is there, the expression that it is part of, and the function around it."""


def makes_file(call: ast.Call, function: ast.AST) -> bool:
    """True for a call by which a file comes to be there: `mark.touch()`, `open(path, "w")`, `torch.save(state, path)`.

    A source's texts are masked as a rule: then an `open` with a mode counts where the function around it writes.
    """
    called = last_name(call.func)
    if called != "open":
        return called in names("makes_file") or called in names("writes_file")
    given = [word.value for word in call.keywords if word.arg == "mode"]
    given = given or call.args[1 if isinstance(call.func, ast.Name) else 0 :][:1]
    mode = given[0].value if given and isinstance(given[0], ast.Constant) else None
    if not isinstance(mode, str):
        return False
    called_there = {last_name(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
    masked = not mode.strip("*…")
    return not called_there.isdisjoint(names("writes_to_file")) if masked else not set("wxa").isdisjoint(mode)


def files_made(tree: ast.AST) -> list[int]:
    """The lines of calls that make a file."""
    return sorted(node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and makes_file(node, tree))


def polls_for_file(sources: Sources, where: Frame) -> bool:
    """True if the innermost loop around the line asks for files: `while not path.exists(): ⏎ time.sleep(1)`."""
    tree = sources.function(where.file, where.line)
    loop = polling_loop(tree, where.line) if tree is not None else None
    if tree is None or loop is None:
        return False
    return any(asking(sources, loop, enclosing_function(tree, where.line), names("asks_files")))


def polling_loop(tree: ast.AST, line: int) -> ast.AST | None:
    """The innermost loop around the line."""
    loops = [node for node in ast.walk(tree) if isinstance(node, LOOPS) and holds(node, line)]
    return max(loops, key=lambda node: node.lineno, default=None)


def asking(sources: Sources, loop: ast.AST, function: ast.AST, called: Collection[str]) -> Iterator[Asked]:
    """The calls of these names in the loop, or in a function that it calls."""
    found = list(_calls_with_text(loop, function, called))
    yield from found
    for name in {} if found else dict.fromkeys(last_name(n.func) for n in ast.walk(loop) if isinstance(n, ast.Call)):
        bodies = sources.user_definitions(name)
        if len(bodies) == 1:
            yield from _calls_with_text(bodies[0][1], bodies[0][1], called)


def _calls_with_text(body: ast.AST, function: ast.AST, called: Collection[str]) -> Iterator[Asked]:
    for node in ast.walk(body):
        whole = getattr(node, "test", node) if isinstance(node, ast.If | ast.While) else node
        if isinstance(whole, ast.expr | ast.Assign | ast.Return) and (whole is not node or isinstance(node, ast.stmt)):
            for call in ast.walk(whole):
                if isinstance(call, ast.Call) and last_name(call.func) in called:
                    yield call, whole, function
