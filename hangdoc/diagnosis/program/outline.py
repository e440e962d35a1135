"""The outline of a piece: its functions, which of them a line belongs to, and where a word stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

from hangdoc.diagnosis.program.bodies import SCOPES, Body
from hangdoc.diagnosis.program.pieces import Piece, walk

_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_WORD = re.compile(r"[^\W\d]\w*")


class Outline:
    """Of one piece; read once, and kept with it."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.module = Body(piece, piece.tree, "<module>", None)
        self.bodies = [self.module]
        """Each after what it stands in; the body of the module first."""
        waiting: list[tuple[ast.AST, Body]] = [(each, self.module) for each in reversed(piece.tree.body)]
        while waiting:
            node, outer = waiting.pop()
            if isinstance(node, SCOPES):
                name = node.name if outer is self.module else f"{outer.name}.{node.name}"
                outer = Body(piece, node, name, outer)
                self.bodies.append(outer)
            for block in ("body", "orelse", "handlers", "finalbody", "cases"):
                inner = getattr(node, block, None)
                if isinstance(inner, list):
                    waiting += [(each, outer) for each in reversed(inner)]

    @cached_property
    def _owners(self) -> list[Body]:
        """Line, from the piece's first → the innermost function around it."""
        found = [self.module] * len(self.piece.lines)
        for each in self.bodies[1:]:
            first, end = each.body_line - self.piece.first_line, each.end_line + 1 - self.piece.first_line
            found[first:end] = [each] * (end - first)
        return found

    def at(self, line: int) -> Body | None:
        """The innermost function, class or module body around the line; None outside of the piece."""
        place = line - self.piece.first_line
        return self._owners[place] if 0 <= place < len(self.piece.lines) else None

    def lines_with(self, word: str) -> Sequence[int]:
        """The lines that hold the identifier, each once."""
        return self._words.get(word, ())

    @cached_property
    def leaving(self) -> frozenset[int]:
        """The lines of suites under a condition that end by leaving the round, the loop or the function."""
        found: set[int] = set()
        for node in walk(self.piece.tree):
            suites = [node.body] if isinstance(node, ast.If | ast.ExceptHandler | ast.match_case) else []
            for suite in [*suites, node.orelse] if isinstance(node, ast.If) else suites:
                if suite and isinstance(suite[-1], _LEAVES):
                    found.update(range(suite[0].lineno, (suite[-1].end_lineno or suite[-1].lineno) + 1))
        return frozenset(found)

    @cached_property
    def _words(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, line in enumerate(self.piece.lines, self.piece.first_line):
            for word in dict.fromkeys(_WORD.findall(line)):
                found.setdefault(word, []).append(number)
        return found


@lru_cache(maxsize=512)
def outline(piece: Piece) -> Outline:
    """That of the piece."""
    return Outline(piece)
