"""What decides at which address a rank looks for the others: around what sets it.

Example: `if self.shared: ⏎ port += 1 ⏎ os.environ["MASTER_PORT"] = str(port)` → that `if`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, names_in, text_of, walk
from hangdoc.model.message import Condition

_PORT, _HOST = "MASTER_PORT", "MASTER_ADDR"


def what_set_them(sources: Sources, places: Collection[str]) -> list[Condition]:
    """The conditions that decide about what differs between the places ('host:port'): the port, or the host; [] where
    the program shows none, or more than can be told."""
    hosts = {place.rpartition(":")[0] for place in places}
    wanted = _PORT if len(hosts) == 1 else _HOST
    found: dict[Condition, None] = {}
    for file, tree in sources.user_trees():
        for line, value in _settings(tree, wanted):
            found.update(dict.fromkeys(_deciding(sources, file, tree, line, value)))
    return list(found) if len(found) <= NAMED else []


def _settings(tree: ast.AST, name: str) -> Iterator[tuple[int, ast.expr]]:
    """(line, value) of what sets the variable in an environment: `env["MASTER_PORT"] = p`, `dict(MASTER_PORT=p)`,
    `os.environ.setdefault("MASTER_PORT", p)`."""
    for node in walk(tree):
        if isinstance(node, ast.Assign):
            if any(isinstance(t, ast.Subscript) and _is(t.slice, name) for t in node.targets):
                yield node.lineno, node.value
        elif isinstance(node, ast.Dict):
            yield from ((k.lineno, v) for k, v in zip(node.keys, node.values, strict=True) if k and _is(k, name))
        elif isinstance(node, ast.Call):
            yield from ((each.value.lineno, each.value) for each in node.keywords if each.arg == name)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault" and len(node.args) == 2:
                yield from ((node.lineno, node.args[1]) for _ in range(_is(node.args[0], name)))


def _is(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _deciding(sources: Sources, file: str, tree: ast.AST, line: int, value: ast.expr) -> Iterator[Condition]:
    """The conditions around the line; and what its value goes by, or that of the names in it."""
    function = enclosing_function(tree, line)
    named = set(names_in(value))
    lines = {line: value}
    for node in walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign) and node.lineno < line:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id in named for target in targets):
                lines[node.lineno] = node.value
    for at, given in sorted(lines.items(), key=lambda each: each[0]):
        around = [g for g in guards(function, at) if g.kind in CONDITIONS and "__name__" not in g.names]
        yield from (cited(guard, file) for guard in around)
        yield from (Condition(f"if {text_of(n.test)}", file, at) for n in walk(given) if isinstance(n, ast.IfExp))
