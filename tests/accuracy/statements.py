"""Which lines of a file are one statement: a person who names any of them means all."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from hangdoc.model.snapshot import SourceText


def places_of_statement(sources: Sequence[SourceText], file: str, line: int) -> set[str]:
    """'train.py:34' for each line of the statement there, of a compound one for those of its head.

    Only the line itself where the sources do not hold it, or cannot be parsed.
    """
    heads = [
        (first, last)
        for source in sources
        if source.file == file and source.holds(line)
        for first, last in heads_of(source)
        if first <= line <= last
    ]
    first, last = min(heads, key=lambda head: head[1] - head[0], default=(line, line))
    return {f"{PurePosixPath(file).name}:{number}" for number in range(first, last + 1)}


def heads_of(source: SourceText) -> Iterator[tuple[int, int]]:
    """(first, last) line of each statement; without what a compound one holds."""
    try:
        tree = ast.parse(textwrap.dedent(source.text))
    except (SyntaxError, ValueError):
        return
    above = source.first_line - 1
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case):
            first, last = node.pattern.lineno, node.pattern.end_lineno
        elif isinstance(node, (ast.stmt, ast.ExceptHandler)):
            first, last = _first(node), node.end_lineno
        else:
            continue
        held = [_first(each) for each in getattr(node, "body", ())]
        held += [each.pattern.lineno for each in getattr(node, "cases", ())]
        if held:
            last = max(first, min(held) - 1)
        yield above + first, above + (last or first)


def _first(node: ast.stmt | ast.ExceptHandler) -> int:
    """Its first line, which is that of its first decorator."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
