"""Names that each process makes for itself: by its clock, its number, its host, its own folder or by chance.

Example: `while not self.done.exists():`, `self.done = self.folder / "DONE"`, `self.folder = root / stamp` and `stamp =
time.strftime("%H%M%S")` → the last of these: ranks that come there in different seconds look for different files.
"""

from __future__ import annotations

import ast
from collections import deque

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.settings import Setting, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import innermost_loop, last_name, walk
from hangdoc.model.process import Frame


def own_name_polled(sources: Sources, where: Frame) -> Setting | None:
    """The setting by which the path that the innermost loop around the line asks for is each process's own; None where
    the source shows none."""
    here = place_of(sources, where.file, where.line)
    loop = innermost_loop(here.tree, where.line) if here is not None else None
    if here is None or loop is None:
        return None
    asked = [n for n in walk(loop) if isinstance(n, ast.Call) and last_name(n.func) in names("asks_files")]
    paths = [call.args[0] if call.args else getattr(call.func, "value", call) for call in asked]
    steps = deque((here, part) for path in paths for part in _parts(path))
    seen = 0
    while steps and seen < TRIED:
        at, part = steps.popleft()
        for setting in settings(sources, at, part):
            seen += 1
            if setting.value is None:
                continue
            if any(_is_own(node) for node in walk(setting.value)):
                return setting if _is_for_all(setting) else None
            steps.extend((setting.at, each) for each in _parts(setting.value))
    return None


def _is_for_all(setting: Setting) -> bool:
    """False for what one rank may choose for all: under a condition, or in a list, as a broadcast needs one.

    Example: `shared = [mkdtemp() if rank == 0 else None] ⏎ dist.broadcast_object_list(shared)` → False.
    """
    chosen = setting.value is None or any(isinstance(n, ast.IfExp | ast.List) for n in walk(setting.value))
    return not chosen and not any(guard.kind in CONDITIONS for guard in guards(setting.at.tree, setting.line))


def _parts(expression: ast.expr) -> list[ast.expr]:
    """The names and attributes in the expression, and the calls, which answer for what they return."""
    found = [n for n in walk(expression) if isinstance(n, ast.Name | ast.Attribute | ast.Call)]
    inner = {id(n.value) for n in found if isinstance(n, ast.Attribute)}
    return [each for each in found if id(each) not in inner]


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in names("differs_by_process")
