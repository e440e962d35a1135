"""The mechanisms of the diagnosis: its functions that are asked among others, and the rows of its tables.

A function is a mechanism if it can answer nothing, and stands somewhere where another one may answer in its place:

- in a list of functions (blame's deciders, passes of conditions), or registered by a decorator (the rules of causes);
- as an operand of ``or``; as an answer that ends its caller early (``if (found := f(case)) is not None: return …``);
- as one of several sources that are put together (``[*f(x), *g(x)]``, ``f(x) + g(x)``, ``yield from f(x)``);
- as a pass, which returns what it was given, changed or as it was (``f(g(x))``, ``x = f(x)``).

What it answers when it is left out follows from what it says it returns: None of ``X | None``, an empty tuple of a
tuple, what it was given of a pass. A function that always has to answer (a number, an Activity), and a test that is
asked beside others, are parts of who asks them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PACKAGE = "hangdoc.diagnosis"
TABLES = {"landmarks": "frames/landmarks.toml", "names": "frames/names.toml", "native": "frames/native.toml"}
TABLES |= {"kernel": "frames/kernel.toml"}

_READERS = "frames.names"
"""Reads the tables, whose rows are the mechanisms."""
_EMPTY = {
    "bool": "False",
    "str": "''",
    "Message": "''",
    "Sentences": "''",
    "tuple": "()",
    "Stack": "()",
    "list": "[]",
    "Sequence": "()",
    "Collection": "()",
    "dict": "{}",
    "Mapping": "{}",
    "set": "set()",
    "frozenset": "frozenset()",
    "Iterator": "iter(())",
    "Iterable": "()",
}
"""The head of an annotation → what is nothing of that type."""


class Mechanism(NamedTuple):
    """``module``: below the package, or the table's file. ``name``: 'left_turn', 'Case._polling', or the row's.
    ``size``: syntax nodes, of a row bytes. ``things``: what ``history.things`` calls it, any of which may be the
    first. ``nothing``: an expression, of a pass its parameter's name. ``row``: (table, section, place in it; -1 of an
    entry with a name)."""

    module: str
    name: str
    size: int
    path: str
    things: tuple[str, ...]
    nothing: str = ""
    row: tuple[str, str, int] | None = None

    @property
    def key(self) -> str:
        """Unique among all, and what is printed: 'blame.left_turn:left_turn'."""
        return f"{self.module}:{self.name}"


def nothing(function: ast.FunctionDef) -> str:
    """What the function answers when it has nothing to say, as an expression; '' if it always has to say something.

    Example: ``-> Blame[Diverged] | None`` → 'None'; ``(job: JobSnapshot) -> JobSnapshot`` → 'job'.
    """
    if function.returns is None:
        return ""
    returned = ast.unparse(function.returns).strip("'\"")
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    same = [each.arg for each in given if each.annotation is not None and ast.unparse(each.annotation) == returned]
    if "None" in returned.split(" | "):
        return "None" if returned != "None" else ""
    if same and returned not in ("bool", "str", "int", "float"):
        return same[0]
    return _EMPTY.get(returned.partition("[")[0], "")


def size(node: ast.AST) -> int:
    """Syntax nodes, without docstrings."""
    return sum(1 for _ in ast.walk(node)) - 2 * sum(
        isinstance(each, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(each) is not None
        for each in ast.walk(node)
    )


@dataclass
class _Module:
    name: str
    """Below the package: 'blame.left_turn'."""
    nodes: list[ast.AST]
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """Qualified name → function or method."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name here → (module below the package, name there)."""


def _read(name: str, text: str) -> _Module:
    tree = ast.parse(text)
    found = _Module(name, list(ast.walk(tree)))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found.functions |= {f"{node.name}.{m.name}": m for m in node.body if isinstance(m, ast.FunctionDef)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            there = (node.module or "").removeprefix(PACKAGE).lstrip(".")
            found.imported |= {alias.asname or alias.name: (there, alias.name) for alias in node.names}
    return found


def functions(sources: dict[str, str]) -> list[Mechanism]:
    """The functions that are mechanisms. ``sources``: module below the package → its text."""
    modules = {name: _read(name, text) for name, text in sources.items()}
    methods: dict[str, list[tuple[str, str]]] = {}
    for module in modules.values():
        for name in module.functions:
            if "." in name:
                methods.setdefault(name.partition(".")[2], []).append((module.name, name))
    asked: set[tuple[str, str]] = set()
    passes: set[tuple[str, str]] = set()
    listed: set[tuple[str, str]] = set()
    registered: set[tuple[str, str]] = set()
    for module in modules.values():
        listed |= {_resolved(each, module, methods) for each in _listed(module.nodes)}
        asked |= {_resolved(each, module, methods) for each in _asked_among_others(module.nodes)}
        passes |= {_resolved(each, module, methods) for each in _asked_in_turn(module.nodes)}
        for name, function in module.functions.items():
            if any(isinstance(d, ast.Call) and _is_ours(d.func, module) for d in function.decorator_list):
                registered.add((module.name, name))
    found = []
    for module in (each for each in modules.values() if each.name != _READERS):
        for name, function in module.functions.items():
            # Who asks the registered ones takes None, though one that always answers does not say so.
            answer = nothing(function) or "None" * ((module.name, name) in registered)
            is_pass = answer.isidentifier() and answer not in ("None", "False")
            among = registered | listed
            among |= (asked if answer != "False" else set()) | (passes if is_pass else set())
            if answer and (module.name, name) in among:
                path = f"hangdoc/diagnosis/{module.name.replace('.', '/')}.py"
                found.append(Mechanism(module.name, name, size(function), path, (f"def {function.name}",), answer))
    return found


def _is_ours(decorator: ast.expr, module: _Module) -> bool:
    return isinstance(decorator, ast.Name) and (decorator.id in module.functions or decorator.id in module.imported)


def _resolved(node: ast.expr, module: _Module, methods: dict[str, list[tuple[str, str]]]) -> tuple[str, str]:
    """(module, qualified name) of the function that an expression names or calls; ('', '') where none is known."""
    node = node.value if isinstance(node, (ast.NamedExpr, ast.Starred)) else node
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Name):
        return (module.name, node.id) if node.id in module.functions else module.imported.get(node.id, ("", ""))
    if isinstance(node, ast.Attribute):
        there = methods.get(node.attr, [])
        here = [each for each in there if each[0] == module.name]
        return here[0] if len(here) == 1 else there[0] if len(there) == 1 else ("", "")
    return "", ""


def _listed(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """The names in lists and dictionaries: of functions, those that are asked one after the other."""
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            yield from (each for each in node.elts if isinstance(each, ast.Name))
        elif isinstance(node, ast.Dict):
            yield from (each for each in node.values if isinstance(each, ast.Name))


def _asked_among_others(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """The calls of functions in whose place another one may answer."""
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            yield from (
                each for each in node.elts if isinstance(each, ast.Starred) and isinstance(each.value, ast.Call)
            )
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            yield from node.values
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
            yield from (each for each in (node.left, node.right) if isinstance(each, ast.Call))
        elif isinstance(node, ast.YieldFrom):
            yield node.value
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, part, None), list):
                yield from _ends_early(statements)


def _asked_in_turn(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """The calls that are given what another call answers, or that change a name: ``f(g(x))``, ``x = f(x)``."""
    for node in nodes:
        if isinstance(node, ast.Call):
            inner = [each for each in node.args if isinstance(each, ast.Call)]
            yield from [node, *inner] if inner else []
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            named = {each.id for each in node.value.args if isinstance(each, ast.Name)}
            if any(isinstance(target, ast.Name) and target.id in named for target in node.targets):
                yield node.value


def _ends_early(statements: list[ast.stmt]) -> Iterator[ast.expr]:
    """The calls whose answer these statements return at once: ``if (x := f()): return x``, or ``x = f()`` before
    ``if x is not None: return g(x)``."""
    given: dict[str, ast.expr] = {}
    for statement in statements:
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return):
            for node in ast.walk(statement.test):
                if isinstance(node, ast.NamedExpr):
                    given[node.target.id] = node.value
            tested = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
            returned = {node.id for node in ast.walk(statement.body[-1]) if isinstance(node, ast.Name)}
            yield from (call for name, call in given.items() if name in tested & returned)
        given = {}
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            given = {statement.targets[0].id: statement.value}


def rows(table: str, text: str, loaded: dict[str, object]) -> list[Mechanism]:
    """The rows of one table, each with its place in it. ``loaded``: the same text, as tomllib reads it."""
    parts = re.split(r"^(?=\[)", text, flags=re.M)[1:]
    places: dict[str, int] = {}
    found = []
    for part in parts:
        section = part.split("]")[0].lstrip("[")
        place = places[section] = places.get(section, -1) + 1
        content = loaded[section]
        if isinstance(content, list):
            entry = content[place]
            file, called = entry.get("file", ""), entry.get("function", [])
            name = f"[[{section}]] {file} {' '.join(called[:2])}" if file else f"[[{section}]] {_text(entry)}"
            things = tuple(f"{file}:{each}" for each in called) or (_text(entry),)
        else:
            place, name, things = -1, f"[{section}]", (f"[{section}]",)
        bytes_ = len("\n".join(line for line in part.split("\n") if not line.startswith("#")).strip().encode())
        module = TABLES.get(table, table)
        path = f"hangdoc/diagnosis/{module}"
        found.append(Mechanism(module.rpartition("/")[2], f"{name}", bytes_, path, things, "", (table, section, place)))
    return found


def _text(entry: dict[str, object]) -> str:
    return str(entry.get("name") or entry.get("pattern") or "")


def all_mechanisms(root: Path) -> list[Mechanism]:
    """Those of the checkout, functions first."""
    from hangdoc.model.tables import table

    folder = root / "hangdoc" / "diagnosis"
    sources = {
        ".".join(path.relative_to(folder).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }
    found = functions(sources)
    for name, path in TABLES.items():
        found += rows(name, (folder / path).read_text(encoding="utf-8"), table(f"{PACKAGE}.frames", name))
    return found
