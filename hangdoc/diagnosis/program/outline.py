"""The outline of a piece: its functions, which of them a line belongs to, and where a word stands."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache

from hangdoc.diagnosis.program.functions import SCOPES, Function
from hangdoc.diagnosis.program.pieces import Piece


class Outline:
    """Of one piece; read once, and kept with it."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.module = Function(piece, piece.tree, "<module>", None)
        self.functions = [self.module]
        """Each after what it stands in; the body of the module first."""
        waiting: list[tuple[ast.AST, Function]] = [(each, self.module) for each in reversed(piece.tree.body)]
        while waiting:
            node, outer = waiting.pop()
            if isinstance(node, SCOPES):
                name = node.name if outer is self.module else f"{outer.name}.{node.name}"
                outer = Function(piece, node, name, outer)
                self.functions.append(outer)
            for block in ("body", "orelse", "handlers", "finalbody", "cases"):
                inner = getattr(node, block, None)
                if isinstance(inner, list):
                    waiting += [(each, outer) for each in reversed(inner)]

    @cached_property
    def _owners(self) -> list[Function]:
        """Line, from the piece's first → the innermost function around it."""
        found = [self.module] * len(self.piece.lines)
        for each in self.functions[1:]:
            first, end = each.body_line - self.piece.first_line, each.end_line + 1 - self.piece.first_line
            found[first:end] = [each] * (end - first)
        return found

    def at(self, line: int) -> Function | None:
        """The innermost function, class or module body around the line; None outside of the piece."""
        place = line - self.piece.first_line
        return self._owners[place] if 0 <= place < len(self.piece.lines) else None

    def lines_with(self, word: str) -> Iterator[int]:
        """The lines that hold the identifier, each once."""
        text, starts = self._text
        if word in text:
            places = (bisect_right(starts, found.start()) for found in _pattern(word).finditer(text))
            yield from (place + self.piece.first_line - 1 for place in dict.fromkeys(places))

    @cached_property
    def _text(self) -> tuple[str, list[int]]:
        """(the text, the offsets at which its lines begin)."""
        starts = [0]
        for line in self.piece.lines:
            starts.append(starts[-1] + len(line) + 1)
        return "\n".join(self.piece.lines), starts


@lru_cache(maxsize=512)
def outline(piece: Piece) -> Outline:
    """That of the piece."""
    return Outline(piece)


@lru_cache(maxsize=1024)
def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
