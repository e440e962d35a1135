"""The predicates of a program: where they stand, which guard stands nearest to a line, and their values in a run."""

from __future__ import annotations

import ast
import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECORDER = '''\
"""Keeps the values of predicates, and writes them when the rank ends."""
import atexit, builtins, hashlib, json, os
_seen = {}

def _note(number, value):
    entry = _seen.setdefault(number, [0, 0, hashlib.sha256()])
    entry[bool(value) if isinstance(value, bool) else 1] += 1 if isinstance(value, bool) else value
    entry[2].update(repr(value).encode())

def _test(number, value):
    try:
        _note(number, bool(value))
    except (ValueError, RuntimeError):
        pass
    return value

def _items(number, values):
    count = 0
    try:
        for value in values:
            count += 1
            yield value
    finally:
        _note(number, count)

def _write():
    if _owner == os.getpid() and "RANK" in os.environ:
        with open(os.path.join(os.path.dirname(__file__), f"seen-{os.environ['RANK']}.json"), "w") as file:
            json.dump({n: [no, yes, digest.hexdigest()] for n, (no, yes, digest) in _seen.items()}, file)

_owner = os.getpid()
builtins._recorded_test, builtins._recorded_items = _test, _items
atexit.register(_write)
'''
_GUARDS = ast.If | ast.While | ast.For
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True, order=True)
class Predicate:
    """One of them. ``file`` is relative to the program's folder; ``text`` as ``ast.unparse`` writes it."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.text}"


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of the program's Python files, sorted."""
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def predicates_of(folder: Path) -> list[Predicate]:
    """All predicates of a program, by file and line."""
    return [found for file, text in modules(folder) for found in predicates_in(file, text)]


def predicates_in(file: str, text: str) -> list[Predicate]:
    """All predicates of one file. Raises ``SyntaxError``."""
    return [Predicate(file, line, shown) for _, line, shown in _found(ast.parse(text))]


def _found(tree: ast.AST) -> list[tuple[ast.expr, int, str]]:
    """(the expression, its predicate's line, its text), in the order of the source."""
    found: list[tuple[ast.expr, int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.Assert):
            found.append((node.test, node.lineno, f"{type(node).__name__.lower()} {ast.unparse(node.test)}"))
        elif isinstance(node, ast.For):
            found.append((node.iter, node.lineno, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"))
        elif isinstance(node, ast.IfExp):
            found.append((node.test, node.test.lineno, ast.unparse(node)))
        elif isinstance(node, ast.BoolOp):
            found += [(value, value.lineno, ast.unparse(value)) for value in node.values]
        elif isinstance(node, ast.comprehension):
            found += [(test, test.lineno, f"if {ast.unparse(test)}") for test in node.ifs]
        elif isinstance(node, ast.match_case) and node.guard is not None:
            found.append((node.guard, node.guard.lineno, f"case … if {ast.unparse(node.guard)}"))
    return sorted(found, key=lambda each: (each[1], each[0].col_offset, each[0].lineno))


def nearest_guard(text: str, line: int) -> int | None:
    """The line of the innermost if, while or for around ``line`` in the function where it stands; None without one."""
    best: tuple[int, int] | None = None
    function = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0):
            function = max(function, node.lineno)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _GUARDS) or not function <= node.lineno:
            continue
        inside = [*node.body, *node.orelse]
        if any(each.lineno <= line <= (each.end_lineno or 0) for each in inside):
            best = max(best or (0, 0), (node.lineno, node.col_offset))
    return best[0] if best else None


def record(folder: Path, into: Path) -> list[Predicate]:
    """Copy the program with every predicate's value recorded; each rank that ends writes ``seen-RANK.json`` there.
    Returns the predicates by the numbers that stand in these files."""
    shutil.copytree(folder, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "answer.json"))
    numbers = itertools.count()
    found: list[Predicate] = []
    for file, text in modules(folder):
        tree = ast.parse(text)
        recording = _Recording({id(test): next(numbers) for test, _, _ in _found(tree)}, tree)
        found += predicates_in(file, text)
        tree = ast.fix_missing_locations(recording.visit(tree))
        if file == "main.py":
            after = sum(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tree.body)
            after += ast.get_docstring(tree) is not None
            tree.body.insert(after, ast.parse("import _recorder").body[0])
        (into / file).write_text(ast.unparse(tree), encoding="utf-8")
    (into / "_recorder.py").write_text(RECORDER, encoding="utf-8")
    return found


def seen(folder: Path) -> dict[int, dict[int, tuple[tuple[int, int], str]]]:
    """What recorded ranks wrote: by rank and predicate's number, how often it was false and true (of a ``for``: 0 and
    how many items), and a digest of the sequence."""
    found = {}
    for path in folder.glob("seen-*.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        rank = int(path.stem.partition("-")[2])
        found[rank] = {int(number): ((no, yes), digest) for number, (no, yes, digest) in values.items()}
    return dict(sorted(found.items()))


class _Recording(ast.NodeTransformer):
    """Puts a call of the recorder around each of the expressions."""

    def __init__(self, numbers: dict[int, int], tree: ast.AST) -> None:
        self._numbers = numbers
        self._items = {id(node.iter) for node in ast.walk(tree) if isinstance(node, ast.For)}

    def visit(self, node: ast.AST) -> ast.AST:
        number = self._numbers.get(id(node))
        items = id(node) in self._items
        new = self.generic_visit(node)
        if number is None or not isinstance(new, ast.expr):
            return new
        name = ast.Name("_recorded_items" if items else "_recorded_test", ast.Load())
        return ast.Call(name, [ast.Constant(number), new], [])
