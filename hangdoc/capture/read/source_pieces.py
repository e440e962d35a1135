"""The text of one file, cut into its functions."""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath

from hangdoc.capture.read.scrubbing import scrub
from hangdoc.capture.read.source_files import NoSourceError
from hangdoc.model.frames import is_third_party
from hangdoc.model.snapshot import SourceText
from hangdoc.model.stop_flags import (
    functions,
)

MAX_MODULE_LINES = 4000


_MAX_UP = 2
"""Folders above a file in which what it imports is looked for: a package imports itself by its whole name."""


_ENDS = (".py", "/__init__.py")


class SourcePieces:
    """The text of one file, cut into functions."""

    def __init__(self, file: str, text: str, keep_strings: bool, cell: int = 0) -> None:
        self.file = file
        self.cell = cell
        try:
            self.tree = tree = ast.parse(text)
            # Of a library's large file a few functions are needed: each is scrubbed by itself.
            self._scrub = partial(scrub, keep_strings=keep_strings) if is_third_party(file) else None
            shown = text if self._scrub is not None else scrub(text, keep_strings=keep_strings)
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError) as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise NoSourceError(f"Python {version}, which hangdoc runs on, cannot parse it") from error
        self.lines = shown.split("\n")
        self.functions = sorted(_functions(tree))
        self.classes = [
            (_first_line(node), node.end_lineno or node.lineno, node.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        ]
        self.statements = [(_first_line(node), node.end_lineno or node.lineno) for node in tree.body]

    def around(self, function: str, line: int) -> SourceText | None:
        """The innermost function that holds ``line``, or the module; None if the file has no such line."""
        if not 1 <= line <= len(self.lines):
            return None
        if function != "<module>":
            holding = [(end - start, start, end, name) for start, end, name in self.functions if start <= line <= end]
            if holding:
                _, start, end, name = min(holding)
                return SourceText(self.file, name, start, self._text(start, end), self.cell)
        if len(self.lines) <= MAX_MODULE_LINES:
            return SourceText(self.file, "<module>", 1, self._text(1, len(self.lines)), self.cell)
        for start, end in self.statements:
            if start <= line <= end:
                return SourceText(
                    self.file, "<module>", start, self._text(start, min(end, start + MAX_MODULE_LINES)), self.cell
                )
        return None

    def fits(self, function: str, line: int) -> bool:
        """May a frame of that function stand at that line? Of code without a name, any line of the file will do."""
        if function.startswith("<"):
            return line <= len(self.lines)
        return any(start <= line <= end and name == function for start, end, name in (*self.functions, *self.classes))

    def text_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> SourceText:
        """One function of the file."""
        start = _first_line(node)
        return SourceText(self.file, node.name, start, self._text(start, node.end_lineno or node.lineno), self.cell)

    def tree_of(self, text: SourceText) -> ast.AST:
        """The syntax tree of a piece of the file."""
        return next((node for node in functions(self.tree) if _first_line(node) == text.first_line), self.tree)

    def imported(self) -> list[str]:
        """Files beside this one that it may import, as far as their names tell; they need not exist."""
        found: list[str] = []
        folder = PurePosixPath(self.file).parent
        for node in ast.walk(self.tree):
            names: list[str] = []
            level = 0
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                level, module = node.level, node.module or ""
                names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            places = [folder.parents[level - 2]] if level > 1 else [folder, *folder.parents[: 0 if level else _MAX_UP]]
            parts = [name.strip(".").replace(".", "/") for name in names]
            found += [f"{place}/{part}{end}" for place in places for part in parts if part for end in _ENDS]
        return found

    def _text(self, start: int, end: int) -> str:
        text = "\n".join(self.lines[start - 1 : end])
        if self._scrub is None:
            return text
        try:
            return self._scrub(text)
        except (SyntaxError, tokenize.TokenError):
            return ""


def _functions(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, name) of each function, its decorators included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _first_line(node), node.end_lineno or node.lineno, node.name


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(int(decorator.lineno) for decorator in decorators)])
