"""Which statements of the program wrote the lines of its output: a line in a rare branch tells which rank was there.

Of `log.warning("rank %d: document %d skipped", rank, i)` the literals stand in the line 'rank 3: document 9 skipped',
in that order; 3 is the rank that wrote it, as the value stands for the program's own `rank`. Literals are not kept in a
snapshot, and neither is a line in which none of them stands.
"""

from __future__ import annotations

import ast
import re
import string
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangdoc.model.snapshot import Written

_LEAST_LETTERS = 6
"""In a text's literals: fewer of them stand in lines by chance. Judgement."""
_MOST_TEXTS = 4000
_MOST_KEPT = 400
_MAX_LINE = 300
_MOST_PLACES = 3
"""Of one line: what was logged, and the message of the exception in it. Judgement."""
_PERCENT = re.compile(r"%(?:\(\w{1,40}\))?[-#0 +]{0,4}\d{0,3}(?:\.\d{1,3})?[sdifgexrXGEc]")
_RANK = re.compile(r"(?<![a-zA-Z])(?:my|this|world|global|dist|get)?_?[rR]ank(?![a-zA-Z])")
"""Names of the rank itself: `self.rank`, `dist.get_rank()`, `global_rank`; a local rank is one of its host alone."""
_BEFORE_RANK = re.compile(r"(?<![a-zA-Z])rank[ :=#_]{0,2}$", re.IGNORECASE)
_PREFIX = re.compile(r"(?<![a-zA-Z])rank[ :=#_]{0,2}(\d{1,5})(?!\d)|^\[(?:default|rank)?(\d{1,5})\]", re.IGNORECASE)
"""Who writes, in what a formatter or a launcher puts before a line."""
_PROCESS = re.compile(r"(?:[\[(]|(?<![a-zA-Z])pid[ =:]{0,2})(\d{3,7})(?=[\])\s,:])", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]")
_LOOPS = (ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Output = tuple[str, "int | None", tuple[str, ...]]
"""(path of a file, the rank whose own file it is, its lines, masked)."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the program. ``literals`` are what stands between its values; ``rank_after``: the numbers of the
    literals behind which a value is the rank."""

    file: str
    line: int
    literals: tuple[str, ...]
    rank_after: tuple[int, ...]
    length: int
    longest: str


def texts_of(file: str, tree: ast.AST) -> Iterator[_Text]:
    """The texts of a module that can be told in its output."""
    inside: set[int] = set()
    given: dict[int, list[ast.expr]] = {}
    of_loops: dict[int, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            _with_names(node, of_loops)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))  # a docstring
        elif isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in ast.walk(node) if part is not node)
        elif isinstance(node, ast.Call):
            _with_arguments(node, given)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            given[id(node.left)] = list(values)
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            yield from _text(file, node.lineno, _of_joined(node), of_loops.get(id(node), set()))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = _of_literal(node.value, given.get(id(node)))
            yield from _text(file, node.lineno, parts, of_loops.get(id(node), set()))


def _with_names(loop: ast.AST, of_loops: dict[int, set[str]]) -> None:
    """Note the names that the loop sets, of each text in it: `rank` of `for rank, loss in enumerate(losses):` goes over
    all ranks, and is not the one that writes."""
    targets = [each.target for each in getattr(loop, "generators", [loop])]
    set_here = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    for part in ast.walk(loop):
        if isinstance(part, ast.JoinedStr | ast.Constant):
            of_loops.setdefault(id(part), set()).update(set_here)


def _with_arguments(call: ast.Call, given: dict[int, list[ast.expr]]) -> None:
    """Note the values that a text is given: `log.info("…", x)`, `"…".format(x)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
        given[id(call.func.value)] = call.args
    for number, argument in enumerate(call.args[:2]):  # `logger.log(level, "…", x)`
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            given[id(argument)] = call.args[number + 1 :]


_Parts = list[tuple[str, "ast.expr | None"]]
"""(literal, the value behind it; None where nothing is known of it)."""


def _of_joined(node: ast.JoinedStr) -> _Parts:
    parts: _Parts = []
    literal = ""
    for each in node.values:
        if isinstance(each, ast.Constant):
            literal += str(each.value)
        elif isinstance(each, ast.FormattedValue):
            parts.append((literal, each.value))
            literal = ""
    return [*parts, (literal, None)]


def _of_literal(text: str, values: list[ast.expr] | None) -> _Parts:
    pieces = _PERCENT.split(text)
    if len(pieces) == 1 and values is not None and "{" in text:
        try:
            pieces = [literal for literal, _, _, _ in string.Formatter().parse(text)]
        except ValueError:
            return [(text, None)]
        pieces = pieces if text.endswith("}") is False else [*pieces, ""]
    known = values if values is not None and len(values) >= len(pieces) - 1 else [None] * len(pieces)
    return list(zip(pieces, [*known[: len(pieces) - 1], None], strict=False))


def _text(file: str, line: int, parts: _Parts, of_loops: set[str]) -> Iterator[_Text]:
    literals: list[str] = []
    rank_after: list[int] = []
    for number, (literal, value) in enumerate(parts):
        first, ended, _ = (literal if literals else literal.lstrip()).partition("\n")
        first = first.rstrip() if ended or number + 1 == len(parts) else first
        literals.append(first)
        if ended:
            break
        if value is None or {part.id for part in ast.walk(value) if isinstance(part, ast.Name)} & of_loops:
            continue
        if _BEFORE_RANK.search(first) or _RANK.search(ast.unparse(value)[:80]):
            rank_after.append(len(literals) - 1)
    count = sum(len(_LETTERS.findall(each)) for each in literals)
    word = len(parts) == 1 and " " not in literals[0].strip()  # a key or a name, and no line
    if count >= _LEAST_LETTERS and not word:
        yield _Text(file, line, tuple(literals), tuple(rank_after), count, max(literals, key=len))


def written_by(
    outputs: Iterable[Output], texts: Iterable[_Text], until: float, rank_of: Mapping[int, int]
) -> tuple[Written, ...]:
    """The lines in which texts of the program stand, in their order. ``rank_of``: by the process's number.

    Nothing is found after ``until`` (monotonic).
    """
    # The longest first; of equal ones nobody can tell which of them wrote a line.
    ordered = sorted(list(texts)[:_MOST_TEXTS], key=lambda text: -text.length)
    known: dict[str, list[tuple[_Text, int | None]]] = {}
    found: list[Written] = []
    for path, owner, lines in outputs:
        kept: list[Written] = []
        reported = False
        for place, line in enumerate(lines):
            reported = line.startswith("hangdoc") or (reported and line[:2].strip() == "")
            if time.monotonic() > until:
                return ()  # a part of it would not tell what was not written
            if reported:
                continue  # a report of hangdoc's shows lines of the source and of the output
            if line not in known:
                known[line] = _matching(line, ordered)
            if known[line]:
                rank = next((rank for _, rank in known[line] if rank is not None), None)
                rank = owner if owner is not None else rank if rank is not None else _prefixed(line, rank_of)
                places = tuple(dict.fromkeys((text.file, text.line) for text, _ in known[line]))
                kept.append(Written(line.strip()[:_MAX_LINE], places, rank, path, place))
        found += kept[-_MOST_KEPT:]
    return tuple(found)


def _matching(line: str, texts: list[_Text]) -> list[tuple[_Text, int | None]]:
    """(text, the rank it names) of those that stand in the line: the longest, and what stands in its values."""
    found: list[tuple[_Text, int | None]] = []
    taken: list[tuple[int, int]] = []
    doubled: set[tuple[str, ...]] = set()
    for text in texts:
        if text.longest not in line:
            continue
        spans = _spans(line, text.literals)
        if spans is None:
            continue
        own = [span for span in spans if span[0] < span[1]]
        if any(first < end and start < last for start, end in own for first, last in taken):
            if any(text.literals == other.literals for other, _ in found):
                doubled.add(text.literals)
            continue
        taken += own
        ranks = (_number_at(line, spans[number][1]) for number in text.rank_after)
        found.append((text, next((rank for rank in ranks if rank is not None), None)))
    return [(text, rank) for text, rank in found if text.literals not in doubled][:_MOST_PLACES]


def _spans(line: str, literals: tuple[str, ...]) -> list[tuple[int, int]] | None:
    """Where the literals stand in the line, in their order; None where they do not. Linear in the line."""
    spans: list[tuple[int, int]] = []
    at = 0
    for literal in literals:
        start = line.find(literal, at)
        if start < 0:
            return None
        at = start + len(literal)
        spans.append((start, at))
    return spans


def _number_at(line: str, place: int) -> int | None:
    found = re.compile(r"\d{1,5}(?!\d)").match(line, place)
    return int(found[0]) if found is not None else None


def _prefixed(line: str, rank_of: Mapping[int, int]) -> int | None:
    """The rank in what stands before the text, or whose process stands there."""
    found = _PREFIX.search(line[:160])
    if found is not None:
        return int(found[1] or found[2])
    processes = (rank_of.get(int(number)) for number in _PROCESS.findall(line[:160]))
    return next((rank for rank in processes if rank is not None), None)
