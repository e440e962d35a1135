"""The captured sources: which function holds a line, what it looks like, and its syntax tree."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import children, dotted, last_name, walk
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText, Unavailable

_DEEPEST_EXPRESSION = 200
"""Expressions within each other; chosen by hand: `ast.unparse` fails at 400 (Python 3.11), with few calls around it."""
_LONGEST_TEXT = 400_000
"""Characters of a piece that is parsed: a module of 4,000 lines has half as many."""
_MOST_NODES = 40_000
"""Nodes of a piece's tree. The largest of the saved cases has 2,350, a module of 4,000 lines some 25,000."""
_BRANCHING = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.match_case),
    *(ast.Return, ast.Continue, ast.Break, ast.Raise, ast.AugAssign, ast.IfExp, ast.BoolOp, ast.comprehension),
)
_ATTRIBUTE = re.compile(r"\.\s*([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call in the user's code. ``tree``: the captured piece of the file; ``function``: the innermost function in it
    around the call, or the piece itself."""

    file: str
    tree: ast.AST
    function: ast.AST
    call: ast.Call

    @property
    def at(self) -> Frame:
        """Its line, in the function around it: '<module>' outside of any."""
        return Frame(self.file, self.call.lineno, getattr(self.function, "name", "<module>"))


@dataclass(frozen=True, slots=True)
class _Definition:
    """``node`` in the captured piece ``tree`` of the file."""

    file: str
    tree: ast.AST
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Sources:
    """The captured sources, found by file and line."""

    def __init__(self, texts: tuple[SourceText, ...]) -> None:
        self._by_file: dict[str, list[SourceText]] = {}
        for text in texts:
            self._by_file.setdefault(text.file, []).append(text)
        self._calls: dict[str, list[UserCall]] | None = None
        self._definitions: dict[str, list[_Definition]] | None = None

    def function(self, file: str, line: int) -> ast.AST | None:
        """The syntax tree of the innermost captured function (or module) that holds the line."""
        return next((tree for text in self._around(file, line) if (tree := _parse(text)) is not None), None)

    def text(self, file: str, line: int) -> SourceText | None:
        """The innermost captured function (or module) that holds the line."""
        return next(iter(self._around(file, line)), None)

    def _around(self, file: str, line: int) -> list[SourceText]:
        """The captured functions that hold the line, the innermost first."""
        fits = [t for t in self._by_file.get(file, ()) if t.holds(line)]
        return sorted(fits, key=lambda t: t.text.count("\n"))

    def line(self, file: str, line: int) -> str | None:
        """One line of source, stripped."""
        for text in self._by_file.get(file, ()):
            lines = text.text.splitlines()
            if 0 <= line - text.first_line < len(lines):
                return lines[line - text.first_line].strip()
        return None

    def registered_with(self, file: str, function: str) -> str:
        """What that file registers the function with as a handler, which the interpreter runs at any moment:
        'signal.signal'; '' of any other function.

        Where several have that name, whose it is cannot be told: `atexit.register(plot.save)` is not Ckpt.save.
        """
        by = next(
            (_handlers(text)[function] for text in self._by_file.get(file, ()) if function in _handlers(text)), ""
        )
        return by if len([found for found, _ in self.functions(function) if found == file]) < 2 else ""

    def methods(self, name: str) -> int:
        """How many classes of the captured source define a method of that name."""
        texts = ((file, text) for file, texts in self._by_file.items() for text in texts)
        return len({(file, line) for file, text in texts for line in _methods(text).get(name, ())})

    def functions(self, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        """(file, definition) of each captured function or method of that name."""
        for each in self._defined(name):
            if isinstance(each.node, ast.FunctionDef):
                yield each.file, each.node

    def user_calls(self, *called: str) -> list[UserCall]:
        """The calls of functions or methods of these names in the user's code, each once."""
        found = self._indexed()
        return [call for name in dict.fromkeys(called) for call in found.get(name, ())]

    def user_calls_like(self, fits: re.Pattern[str]) -> list[UserCall]:
        """The same for what is called by a name, or by attributes of one, that the pattern finds: `engine.on`."""
        return [each for calls in self._indexed().values() for each in calls if fits.search(dotted(each.call.func))]

    def _indexed(self) -> dict[str, list[UserCall]]:
        """Last name → the calls of it. Made once: many rules ask, and files may be long."""
        if self._calls is None:
            self._calls = {}
            seen: set[tuple[str, int, int, int | None, int | None]] = set()
            for file, text in ((file, text) for file, texts in self._by_file.items() for text in texts):
                for call, function in () if is_library(Frame(file, 0, "")) else _calls(text):
                    # `Thread(target=run).start()` has two calls that begin at one place.
                    place = file, call.lineno, call.col_offset, call.end_lineno, call.end_col_offset
                    if place not in seen:
                        seen.add(place)
                        tree = _parse(text) or call
                        self._calls.setdefault(last_name(call.func), []).append(UserCall(file, tree, function, call))
        return self._calls

    def unread(self) -> tuple[Unavailable, ...]:
        """The pieces that are too large to be read, and so said nothing."""
        texts = (text for texts in self._by_file.values() for text in texts)
        return tuple(
            Unavailable(
                f"source of {text.function} at {text.file}:{text.first_line}",
                "it is larger than hangdoc reads",
                f"Split it: at most {SCANNED} statements of one function that branch or jump are read.",
            )
            for text in texts
            if _read(text)[1]
        )

    def files(self) -> list[str]:
        """The files of which any source was captured."""
        return list(self._by_file)

    def user_trees(self) -> Iterator[tuple[str, ast.AST]]:
        """(file, tree) of every captured piece of the user's code that parses."""
        for file in self._by_file:
            if not is_library(Frame(file, 0, "")):
                yield from ((file, tree) for _, tree in self.trees(file))

    def user_functions(self, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        """(file, definition) of each captured function or method of that name in the user's code."""
        return ((file, node) for file, node in self.functions(name) if not is_library(Frame(file, 0, "")))

    def user_definitions(self, name: str) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """The same, also of functions that are awaited."""
        found = ((e.file, e.node) for e in self._defined(name) if not is_library(Frame(e.file, 0, "")))
        return [(file, node) for file, node in found if not isinstance(node, ast.ClassDef)]

    def user_classes(self, name: str) -> list[tuple[str, ast.AST, ast.ClassDef]]:
        """(file, captured piece, definition) of each class of that name in the user's code."""
        found = [each for each in self._defined(name) if not is_library(Frame(each.file, 0, ""))]
        return [(each.file, each.tree, each.node) for each in found if isinstance(each.node, ast.ClassDef)]

    def _defined(self, name: str) -> list[_Definition]:
        """The functions and classes of that name, each once. Indexed once: many rules ask, and files may be long."""
        if self._definitions is None:
            self._definitions = {}
            seen: set[tuple[str, int]] = set()
            for file in self._by_file:
                for _, tree in self.trees(file):
                    for node in walk(tree):
                        if isinstance(node, _DEFINED) and (file, node.lineno) not in seen:
                            seen.add((file, node.lineno))
                            self._definitions.setdefault(node.name, []).append(_Definition(file, tree, node))
        return self._definitions.get(name, [])

    def trees(self, file: str) -> Iterator[tuple[SourceText, ast.AST]]:
        """Every captured piece of the file that parses."""
        for text in self._by_file.get(file, ()):
            tree = _parse(text)
            if tree is not None:
                yield text, tree


def _parse(text: SourceText) -> ast.AST | None:
    """The piece's tree; None for what is no Python, or is too large or too deep to be walked again and again."""
    return _read(text)[0]


@lru_cache(maxsize=4096)
def _read(text: SourceText) -> tuple[ast.AST | None, bool]:
    """(tree, whether there is none because the piece is too large): the one place where what is read is bounded."""
    if len(text.text) > _LONGEST_TEXT:
        return None, True
    # A method is indented, the end of its scrubbed docstring is not: it is no text to be dedented.
    indented = text.text[:1] in (" ", "\t")
    try:
        tree = ast.parse(f"if True:\n{text.text}" if indented else text.text)
    except (SyntaxError, ValueError):
        return None, False
    except (RecursionError, MemoryError):
        return None, True
    if indented and isinstance(tree.body[0], ast.If):
        tree.body = tree.body[0].body
    if _is_too_large(tree):
        return None, True
    if _is_too_deep(tree):
        return None, False
    ast.increment_lineno(tree, text.first_line - 1 - indented)
    return tree, False


def _is_too_large(tree: ast.AST) -> bool:
    """True if the tree, or one function in it, has more than is read of one."""
    nodes = 0
    branches: Counter[int] = Counter()
    waiting = [(tree, 0)]
    while waiting:
        node, function = waiting.pop()
        nodes += 1
        branches[function] += isinstance(node, _BRANCHING)
        if nodes > _MOST_NODES or branches[function] > SCANNED:
            return True
        inside = id(node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        waiting += [(each, inside) for each in children(node)]
    return False


def _is_too_deep(tree: ast.AST) -> bool:
    """True if an expression holds others so deep that Python's own `ast.unparse` may run out of stack.

    Example: `not not … x`, or a sum of a thousand terms, each of which holds all that come before it.
    """
    found: list[tuple[ast.AST, int]] = [(tree, 0)]
    while found:
        node, depth = found.pop()
        if depth > _DEEPEST_EXPRESSION:
            return True
        found += [(each, depth + 1 if isinstance(each, ast.expr) else 0) for each in children(node)]
    return False


# Nodes of a tree are looked through once: what is asked of them again and again is kept with the text.
@lru_cache(maxsize=4096)
def _handlers(text: SourceText) -> dict[str, str]:
    """Function → what the text registers it with as a handler of signals, exits and the like: 'signal.signal'."""
    tree = _parse(text)
    calls = (node for node in walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    registering = [call for call in calls if dotted(call.func) in names("registers_handler")]
    return {dotted(given).rsplit(".", 1)[-1]: dotted(call.func) for call in registering for given in call.args}


@lru_cache(maxsize=4096)
def _calls(text: SourceText) -> tuple[tuple[ast.Call, ast.AST], ...]:
    """Each call of the text, with the innermost function, or the module, that holds it."""
    found: list[tuple[ast.Call, ast.AST]] = []
    tree = _parse(text)
    waiting = [(tree, tree)] if tree is not None else []
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Call):
            found.append((node, function))
        inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        # A decorator runs where the function is made.
        outer = set(map(id, getattr(node, "decorator_list", ())))
        waiting += [(each, function if id(each) in outer else inside) for each in children(node)]
    return tuple(sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset)))


@lru_cache(maxsize=4096)
def _methods(text: SourceText) -> dict[str, set[int]]:
    """Name → the lines of the methods of that name that the text defines: of those of one class, as a property has a
    getter and a setter, the first."""
    found: dict[str, set[int]] = {}
    tree = _parse(text)
    owners = (node for node in walk(tree) if isinstance(node, ast.ClassDef)) if tree is not None else ()
    for owner in owners:
        methods = (node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        lines = {node.name: node.lineno for node in reversed([*methods])}
        for name, line in lines.items():
            found.setdefault(name, set()).add(line)
    return found


def attributes_named(texts: Iterable[SourceText]) -> dict[str, set[str]]:
    """File → the attributes that its code names. Others of a local's say nothing of the way that the code went."""
    found: dict[str, set[str]] = {}
    for each in texts:
        found.setdefault(each.file, set()).update(_ATTRIBUTE.findall(each.text))
    return found
