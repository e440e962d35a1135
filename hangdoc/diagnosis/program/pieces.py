"""Captured texts, parsed: a whole module, or a function cut out of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from hangdoc.diagnosis.program.items import Span
from hangdoc.model.snapshot import Unavailable

_LONGEST_TEXT = 5_000_000
"""Characters of a piece: as much as a capture keeps of all modules together."""
_LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.alias)
_OTHER = {"ctx", "op", "ops", "attr", "arg", "name", "id", "type_comment"}
"""Fields that hold no node that is looked at: to leave them out is quicker."""
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
"""Class → the fields that can hold other nodes, as far as asked for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that parses. ``lines`` are its lines, the first of which is ``first_line`` of the file."""

    file: str
    first_line: int
    lines: tuple[str, ...]
    tree: ast.Module

    def text(self, span: Span) -> str:
        """The code there, on one line. Example: of a test over two lines → 'first and second'."""
        found = self.lines[max(span.line - self.first_line, 0) : max(span.end_line - self.first_line + 1, 0)]
        if not found:
            return ""
        if len(found) == 1:
            line = found[0]
            return (
                line[span.column : span.end_column] if line.isascii() else _between(line, span.column, span.end_column)
            )
        cut = (_between(found[0], span.column, None), *found[1:-1], _between(found[-1], 0, span.end_column))
        return " ".join(" ".join(cut).split())


def _between(line: str, first: int, end: int | None) -> str:
    """The part of a line between two columns in bytes."""
    return line.encode("utf-8", "surrogatepass")[first:end].decode("utf-8", "replace")


@lru_cache(maxsize=512)
def parsed(file: str, first_line: int, text: str) -> Piece | Unavailable:
    """The piece; why there is none where it is no Python that this interpreter reads, or too large. Never raises."""
    what = f"source of {file}:{first_line}"
    if len(text) > _LONGEST_TEXT:
        return Unavailable(what, f"it has more than {_LONGEST_TEXT:,} characters")
    # A method is indented, the end of its scrubbed docstring is not: it is no text to be dedented.
    indented = text[:1] in (" ", "\t")
    try:
        tree = ast.parse(f"if True:\n{text}" if indented else text)
    except (SyntaxError, ValueError) as error:
        return Unavailable(what, f"this Python does not read it: {error}", "Diagnose with the Python of the job.")
    except (RecursionError, MemoryError):
        return Unavailable(what, "it is nested too deeply to be read")
    if indented and isinstance(tree.body[0], ast.If):
        tree.body = tree.body[0].body
    shift = first_line - 1 - indented
    if shift:
        for node in walk(tree):
            if (line := getattr(node, "lineno", None)) is not None:
                node.lineno = line + shift  # type: ignore[attr-defined]
                node.end_lineno += shift  # type: ignore[attr-defined]
    return Piece(file, first_line, tuple(text.split("\n")), tree)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below, the last of the text first, as a stack takes them."""
    found: list[ast.AST] = []
    kind = node.__class__
    for name in _FIELDS[kind] if kind in _FIELDS else _fields(kind):
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [each for each in reversed(value) if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of such nodes that hold other nodes, the last one first."""
    found = () if issubclass(kind, _LEAVES) else tuple(each for each in reversed(kind._fields) if each not in _OTHER)
    _FIELDS[kind] = found
    return found


def walk(*roots: ast.AST) -> Iterator[ast.AST]:
    """The roots and all nodes below them, in the order of the text (of a `dict` or an `ifexp`: of the fields)."""
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def span_of(node: ast.AST, last: ast.AST | None = None) -> Span:
    """Where the node stands, or all from it to ``last``."""
    end = last or node
    return Span(node.lineno, node.col_offset, end.end_lineno, end.end_col_offset)  # type: ignore[attr-defined]


def outermost_in(node: ast.AST, span: Span) -> list[ast.AST]:
    """The largest expressions of the node that lie in the span; the node where none does."""
    found: list[ast.AST] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.expr) and span.holds(span_of(each)):
            found.append(each)
        else:
            waiting += children(each)
    return found or [node]


def dotted(node: ast.AST) -> str:
    """'self.warm' of a name or of attributes of one; '' of anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """'write' of `write`, of `self.write` and of `boards[0].write`; '' of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
