"""The text of one file, whole and cut into its functions."""

from __future__ import annotations

import ast
import sys
import tokenize
from functools import partial
from pathlib import PurePosixPath

from hangdoc.capture.read.scrubbing import Marking, scrub
from hangdoc.capture.read.source_files import FileText, NoSourceError
from hangdoc.model.frames import is_third_party
from hangdoc.model.marks import Marks, unmarked
from hangdoc.model.snapshot import Module, SourceText
from hangdoc.model.stop_flags import functions

MAX_MODULE_LINES = 4000


MAX_UP = 2
"""Folders above a file in which what it imports is looked for: a package imports itself by its whole name."""


_ENDS = (".py", "/__init__.py")


class SourcePieces:
    """The text of one file, cut into functions."""

    def __init__(
        self, file: str, found: FileText, keep_strings: bool, cell: int = 0, marks: Marks | None = None
    ) -> None:
        """``marks``: for the whole text; the pieces have none. Raises NoSourceError."""
        self.file = file
        self.cell = cell
        self._digest = found.digest
        self._marking = Marking(marks) if marks is not None and not keep_strings else None
        try:
            self.tree = tree = ast.parse(found.text)
            # Of a library's large file a few functions are needed: each is scrubbed by itself.
            library = is_third_party(file)
            self._scrub = partial(scrub, keep_strings=keep_strings) if library else None
            whole = found.text if library else scrub(found.text, keep_strings=keep_strings, marking=self._marking)
        except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise NoSourceError(
                f"Python {version}, which hangdoc runs on, cannot parse it",
                "install hangdoc with the Python that the job runs on, if that is a newer one",
            ) from error
        self._whole = whole
        self.lines = (whole if self._marking is None else unmarked(whole)).split("\n")
        self.functions: list[tuple[int, int, str]] = []
        """(first line, last line, name) of each function, its decorators included."""
        self.classes: list[tuple[int, int, str]] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((_first_line(node), node.end_lineno or node.lineno, node.name))
            elif isinstance(node, ast.ClassDef):
                self.classes.append((_first_line(node), node.end_lineno or node.lineno, node.name))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append(node)
        self.functions.sort()
        self.statements = [(_first_line(node), node.end_lineno or node.lineno) for node in tree.body]

    def whole(self) -> Module:
        """All of it, of a file of the user's."""
        name, words = ("", {}) if self._marking is None else (self._marking.marks.name, self._marking.words)
        return Module(self.file, self._digest, self._whole, name, tuple(sorted(words.items())), self.cell)

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
        for node in self.imports:
            level, names = imported_names(node)
            above = [folder, *folder.parents]
            places = above[level - 1 : level] if level else above[: MAX_UP + 1]
            parts = [name.replace(".", "/") for name in names]
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


def imported_names(node: ast.Import | ast.ImportFrom) -> tuple[int, list[str]]:
    """(1 for the file's own folder, 2 for that above it, …, 0 for an absolute import; names of modules and of what may
    be some).

    Examples: `from ..data import feed` → (2, ['data', 'data.feed']); `from . import feed` → (1, ['', 'feed']).
    """
    if isinstance(node, ast.Import):
        return 0, [alias.name for alias in node.names]
    module = node.module or ""
    return node.level, [module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)]


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(int(decorator.lineno) for decorator in decorators)])
