"""Which expression of the source a recorded test is, and what its values mean there.

Example: `if not ready:` jumps by the value of `ready`; that of `if x is not None:` is told as 'N' where `x` was None,
and the condition was false.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.execution.outcomes import Place
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import walk

ROUND = "another round"
TRUE, FALSE, ENDED = "True", "False", "ended"
_ROUNDS = {"T": ROUND, "F": ENDED}
_UNREAD = {"T": "yes", "F": "no", "N": "None", "V": "not None"}

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Condition:
    """The test of an `if` or a `while`, or a `for`, that one jump decides (a `while` tests at both its ends).

    ``words`` as of ``Tested``, for the whole condition; ``copies``: how many jumps the compiler makes of it.
    """

    node: ast.expr | ast.For
    words: dict[str, str]
    copies: int = 1

    @property
    def line(self) -> int:
        """In which it begins."""
        return self.node.lineno

    def holds(self, place: Place) -> bool:
        """True if it is what is tested there."""
        return is_of_loop(self.node, place) if isinstance(self.node, ast.For) else is_of(self.node, place)


def expression_at(sources: Sources, place: Place) -> str:
    """The text of the expression that is exactly there; '' where the captured source has none."""
    file, line, *ends = place
    tree = sources.function(file, line)
    for node in walk(tree) if tree is not None else ():
        if isinstance(node, ast.expr) and (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == (
            line,
            *ends,
        ):
            return ast.unparse(node)
    return ""


def condition_at(sources: Sources, file: str, line: int) -> Condition | None:
    """The condition of the one `if`, `while` or `for` that begins in the line; None where several tests make it up
    (`a and b`), or where the compiler makes several copies of it."""
    tree = sources.function(file, line)
    nodes = list(walk(tree)) if tree is not None else []
    heads = [node for node in nodes if isinstance(node, ast.If | ast.While | ast.For) and node.lineno == line]
    if len(heads) != 1 or _is_copied(nodes, heads[0]):
        return None
    if isinstance(heads[0], ast.For):
        return Condition(heads[0], _ROUNDS)
    test, negated = heads[0].test, False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    chained = isinstance(test, ast.Compare) and len(test.ops) > 1
    if chained or isinstance(test, (*COMPREHENSIONS, ast.BoolOp, ast.IfExp, ast.Constant)):
        return None
    words = {value: word for value, word in words_of(test).items() if word in (TRUE, FALSE)}
    if negated:
        words = {value: FALSE if word == TRUE else TRUE for value, word in words.items()}
    return Condition(test, words, 2 if isinstance(heads[0], ast.While) else 1)


def words_of(test: ast.expr) -> dict[str, str]:
    """'T' and 'F' of an expression; of a comparison with None also 'N' and 'V', which tell its left side."""
    against_none = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot)
    if not isinstance(test, ast.Compare) or not against_none:
        return {**_UNREAD, "T": TRUE, "F": FALSE}
    same, other = (TRUE, FALSE) if isinstance(test.ops[0], ast.Is) else (FALSE, TRUE)
    return {"T": TRUE, "F": FALSE, "N": same, "V": other}


def is_of_loop(loop: ast.For, place: Place) -> bool:
    """CPython 3.12 tells the place of the statement, 3.13 that of what it goes over."""
    own = not isinstance(loop.iter, COMPREHENSIONS) and is_of(loop.iter, place)
    return own or (loop.lineno, loop.col_offset) == place[1:3]


def is_of_comprehension(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, place: Place) -> bool:
    """CPython 3.12 tells the place of all of it, 3.13 that of what it goes over."""
    return is_of(node, place) or any(is_of(each.iter, place) for each in node.generators)


def is_of(node: ast.expr, place: Place) -> bool:
    """True if it is this expression that is tested. Where its texts were taken out, its end is not where it was."""
    ends = (node.end_lineno, node.end_col_offset) == place[3:]
    hidden = any(isinstance(each, ast.Constant) and _is_hidden(each) for each in walk(node))
    return (node.lineno, node.col_offset) == place[1:3] and (ends or hidden)


def _is_hidden(constant: ast.Constant) -> bool:
    return isinstance(constant.value, str) and "…" in constant.value


def _is_copied(nodes: list[ast.AST], head: ast.AST) -> bool:
    """True for what is in a `finally`: it is compiled for each way there."""
    suites = [last for node in nodes for last in getattr(node, "finalbody", ())]
    return any(head is inner for suite in suites for inner in walk(suite))
