"""Small questions about syntax trees: what holds a line, how an expression reads, which names it has."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache

_JOINS = ("and ", "or ")
_CHILDREN, _BELOW = "_children", "_below"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
"""Whatever has a body of its own, which a walk through the statements around it must not enter."""


def children(node: ast.AST) -> Sequence[ast.AST]:
    """The nodes directly below a node of a tree that nobody changes, as ``ast.iter_child_nodes`` gives them.

    The node keeps them: a diagnosis walks through the same trees hundreds of times, and this took half of its time.
    """
    known: Sequence[ast.AST] | None = node.__dict__.get(_CHILDREN)
    if known is None:
        found: list[ast.AST] = []
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
        known = node.__dict__[_CHILDREN] = tuple(found)
    return known


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree that nobody changes, in the order of ``ast.walk``. The root keeps them, as with children."""
    known: Sequence[ast.AST] | None = root.__dict__.get(_BELOW)
    if known is None:
        known = [root]
        for node in known:  # which grows meanwhile
            known += children(node)
        root.__dict__[_BELOW] = known
    return iter(known)


def enclosing_function(tree: ast.AST, line: int) -> ast.AST:
    """The innermost function around the line. The conditions of its caller belong to the caller's frame."""
    best = tree
    for node in _definitions(tree):
        if holds(node, line):
            body_start = node.body[0].lineno
            if body_start <= line and (best is tree or node.lineno >= getattr(best, "lineno", 0)):
                best = node
    return best


@lru_cache(maxsize=4096)
def _definitions(tree: ast.AST) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    """All functions of the tree, which nobody changes: many lines are asked for."""
    return tuple(node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@lru_cache(maxsize=4096)
def loops_of(tree: ast.AST) -> tuple[ast.For | ast.AsyncFor | ast.While, ...]:
    """All loops of the tree, the outer ones first: each rank's line is asked for."""
    return tuple(node for node in walk(tree) if isinstance(node, LOOPS))


def innermost_loop(tree: ast.AST | None, line: int) -> ast.For | ast.AsyncFor | ast.While | None:
    """The innermost loop around the line; None without a tree."""
    around = [loop for loop in loops_of(tree) if holds(loop, line)] if tree is not None else []
    return max(around, key=lambda loop: loop.lineno, default=None)


def function_name(tree: ast.AST, line: int) -> str:
    """The name of the innermost function around the line; '<module>' outside of any."""
    return getattr(enclosing_function(tree, line), "name", "<module>")


def holds(node: ast.AST, line: int) -> bool:
    """True if the line is within the statement or expression, decorators included."""
    first = getattr(node, "lineno", None)
    last = getattr(node, "end_lineno", None)
    if first is None or last is None:
        return False
    # A definition's line is that of its name; its decorators are above.
    above = min((d.lineno for d in getattr(node, "decorator_list", ())), default=first)
    return bool(min(first, above) <= line <= last)


def has_blocks(node: ast.stmt) -> bool:
    """True for a compound statement: one with a body."""
    return any(isinstance(getattr(node, name, None), list) and getattr(node, name) for name in ("body", "orelse"))


def dotted(node: ast.AST) -> str:
    """'self.warm' of a name or of attributes of one; '' of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def last_name(node: ast.AST) -> str:
    """'write' of `write`, of `self.write` and of `boards[0].write`; '' of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_in(test: ast.AST | None) -> tuple[str, ...]:
    """Plain and dotted names in reading order: ('self.warm', 'rank')."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        name = dotted(node)
        if name:
            found.append(name)
            return
        for child in children(node):
            visit(child)

    if test is not None:
        visit(test)
    return tuple(dict.fromkeys(found))


def text_of(node: ast.AST | None, limit: int = 80) -> str:
    """The source on one line, shortened to ``limit`` characters: by hand, what fits on a line of the report."""
    if node is None:
        return ""
    text = _with_double_quotes(_without_brackets(" ".join(ast.unparse(node).split())))
    return text if len(text) <= limit else text[: limit - 1] + "…"


@lru_cache(maxsize=4096)
def _with_double_quotes(text: str) -> str:
    """`batch["x"]` as nearly all code has it, of ast's `batch['x']`; strings that hold a double quote stay as they are.

    Newer interpreters give the parts of an f-string as tokens of their own: only its outer quotes change.
    """
    if "'" not in text:
        return text
    starts: list[tokenize.TokenInfo] = []
    found: list[tuple[int, int]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "FSTRING_START":
                starts.append(token)
            elif kind == "STRING" and not starts:
                found.append((token.start[1], token.end[1]))
            elif kind == "FSTRING_END" and len(starts) == 1:
                found.append((starts.pop().start[1], token.end[1]))
            elif kind == "FSTRING_END":
                starts.pop()
    except (tokenize.TokenError, SyntaxError):  # a whole function on one line is no code
        return text
    for first, end in found:
        quote = text.find("'", first, end)
        if text[end - 1] == "'" and '"' not in text[first:end] and not text.startswith("'''", quote, end - 1):
            text = f'{text[:quote]}"{text[quote + 1 : end - 1]}"{text[end:]}'
    return text


def _without_brackets(text: str) -> str:
    """`a and not b` as people write it, of ast's `a and (not b)`; the text itself where it would mean something else
    then, as of `a and (not b or c)`."""
    return text if "(not " not in text else _same_without_brackets(text)


@lru_cache(maxsize=4096)
def _same_without_brackets(text: str) -> str:
    plain = _stripped(text)
    try:
        same = ast.dump(ast.parse(plain)) == ast.dump(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):  # a whole function on one line is no code
        return text
    return plain if same else text


def _stripped(text: str) -> str:
    at = text.find("(not ")
    while at >= 0:
        end = _closing(text, at)
        before, inside, after = text[:at], text[at + 1 : end], text[end + 1 :]
        behind, ahead = before.endswith(_JOINS), after.startswith(tuple(f" {word}" for word in _JOINS))
        begins, ends = behind or before[-1:] in ("", "("), ahead or after[:1] in ("", ")", "]", ",", ":")
        if (behind or ahead) and begins and ends:
            text = before + inside + after
        at = text.find("(not ", at + 1)
    return text


def _closing(text: str, at: int) -> int:
    """The place of the bracket that closes the one at ``at``."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def target_text(node: ast.expr) -> str:
    """The loop's target as people write it: `i, (x, y)`, without the outer brackets that ast adds."""
    return ", ".join(map(text_of, node.elts)) if isinstance(node, ast.Tuple) and len(node.elts) > 1 else text_of(node)
