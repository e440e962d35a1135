"""The guards of a line of source: the conditions, loops and handlers that decide whether it runs."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.model.snapshot import SourceText

_JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

CONDITIONS = ("if", "return", "expression")
"""Kinds of guards that are one test, true on one side and false on the other."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition on the way to a line. ``taken``: the truth it must have for the line to run.

    ``kind``: 'if', 'loop', 'try', 'match', 'expression', 'decorator', or 'return' for an earlier `if …: return` that
    was not taken. ``names`` are the plain and dotted names it tests; ``span`` the lines of the whole statement.
    ``rounds`` are those of a loop's names that count its rounds, from the same start on every rank.
    """

    kind: str
    line: int
    condition: str
    taken: bool
    names: tuple[str, ...]
    span: tuple[int, int]
    depth: int = 0
    counters: tuple[str, ...] = field(default=())
    rounds: tuple[str, ...] = field(default=())

    @property
    def place(self) -> tuple[int, str]:
        """(line, text): guards that agree in both are the same condition."""
        return self.line, self.condition

    @property
    def is_tried(self) -> bool:
        """True for the body of a try, and of a `with` that swallows exceptions."""
        return self.kind == "try" and self.condition.startswith(("try:", "with "))

    def holds(self, line: int) -> bool:
        """True if the line is in the guard's statement."""
        return self.span[0] <= line <= self.span[1]


class Sources:
    """The captured sources, found by file and line."""

    def __init__(self, texts: tuple[SourceText, ...]) -> None:
        self._by_file: dict[str, list[SourceText]] = {}
        for text in texts:
            self._by_file.setdefault(text.file, []).append(text)

    def function(self, file: str, line: int) -> ast.AST | None:
        """The syntax tree of the innermost captured function (or module) that holds the line."""
        fits = [t for t in self._by_file.get(file, ()) if t.first_line <= line < t.first_line + t.text.count("\n") + 1]
        fits.sort(key=lambda t: t.text.count("\n"))
        for text in fits:
            tree = _parse(text)
            if tree is not None:
                return tree
        return None

    def line(self, file: str, line: int) -> str | None:
        """One line of source, stripped."""
        for text in self._by_file.get(file, ()):
            lines = text.text.splitlines()
            if 0 <= line - text.first_line < len(lines):
                return lines[line - text.first_line].strip()
        return None

    def is_signal_handler(self, file: str, function: str) -> bool:
        """True if that file registers the function as a signal handler, which the interpreter runs at any moment."""
        return any(
            isinstance(node, ast.Call)
            and dotted(node.func) in names("registers_handler")
            and any(dotted(a).rsplit(".", 1)[-1] == function for a in node.args)
            for _, tree in self.trees(file)
            for node in ast.walk(tree)
        )

    def methods(self, name: str) -> int:
        """How many classes of the captured source define a method of that name."""
        return len(
            {
                (file, node.lineno)
                for file in self._by_file
                for _, tree in self.trees(file)
                for owner in ast.walk(tree)
                if isinstance(owner, ast.ClassDef)
                for node in owner.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
            }
        )

    def trees(self, file: str) -> Iterator[tuple[SourceText, ast.AST]]:
        """Every captured piece of the file that parses."""
        for text in self._by_file.get(file, ()):
            tree = _parse(text)
            if tree is not None:
                yield text, tree


@lru_cache(maxsize=4096)
def _parse(text: SourceText) -> ast.AST | None:
    try:
        tree = ast.parse(textwrap.dedent(text.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    ast.increment_lineno(tree, text.first_line - 1)
    return tree


def guards(tree: ast.AST, line: int, called: frozenset[str] = frozenset()) -> list[Guard]:
    """The guards of ``line``, outermost first.

    ``called``: names of the functions that are being called from it, to pick the call among several on the line.
    Example: line 3 of `for x in xs: ⏎ if x: ⏎ f(x)` → the loop at 1, the `if` at 2.
    """
    node: ast.AST = enclosing_function(tree, line)
    found = _decorators(node)
    while True:
        inner = _step(node, line, found, called)
        if inner is None:
            return found
        node = inner


def _decorators(node: ast.AST) -> list[Guard]:
    texts = [(each, text_of(each)) for each in getattr(node, "decorator_list", ())]
    return [
        _guard("decorator", each, f"@{text}", True, None, 0)
        for each, text in texts
        if pattern("decides_about_call").search(text)
    ]


def guards_in_expression(tree: ast.AST, line: int, called: frozenset[str]) -> list[Guard]:
    """The guards within the line's own statement: a comprehension's frame has no others."""
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not has_blocks(n) and holds(n, line)]
    return _in_expression(statements[-1], line, 0, called) if statements else []


def enclosing_function(tree: ast.AST, line: int) -> ast.AST:
    """The innermost function around the line. The conditions of its caller belong to the caller's frame."""
    best = tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and holds(node, line):
            body_start = node.body[0].lineno
            if body_start <= line and (best is tree or node.lineno >= getattr(best, "lineno", 0)):
                best = node
    return best


def holds(node: ast.AST, line: int) -> bool:
    """True if the line is within the statement or expression, decorators included."""
    first = getattr(node, "lineno", None)
    last = getattr(node, "end_lineno", None)
    if first is None or last is None:
        return False
    # A definition's line is that of its name; its decorators stand above.
    above = min((d.lineno for d in getattr(node, "decorator_list", ())), default=first)
    return bool(min(first, above) <= line <= last)


def _step(node: ast.AST, line: int, found: list[Guard], called: frozenset[str]) -> ast.AST | None:
    """Go one statement further in towards the line, noting the guards on the way."""
    for name, block in ast.iter_fields(node):
        if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt | ast.ExceptHandler
                                                                      | ast.match_case):  # fmt: skip
            continue
        for index, child in enumerate(block):
            if not _case_holds(child, line):
                continue
            depth = len(found)
            if not isinstance(node, FUNCTIONS) or name == "body":
                found += [g for g in (_own(node, name, child, depth),) if g]
            found += [g for s in block[:index] if isinstance(s, ast.stmt) for g in _jump(s, len(found))]
            if isinstance(child, ast.stmt) and not has_blocks(child):
                found += _in_expression(child, line, len(found), called)
            inner: ast.AST = child
            return inner
    return None


def _case_holds(child: ast.AST, line: int) -> bool:
    if isinstance(child, ast.match_case):
        return any(holds(s, line) for s in child.body)
    return holds(child, line)


def has_blocks(node: ast.stmt) -> bool:
    """Is it a compound statement?"""
    return any(isinstance(getattr(node, name, None), list) and getattr(node, name) for name in ("body", "orelse"))


def _own(node: ast.AST, name: str, child: ast.AST, depth: int) -> Guard | None:
    """The guard of one block of a compound statement; ``name`` is the block's field, ``child`` the statement in it.

    One function in spite of its branches: a table of Python's compound statements, one `if` for each.
    """
    if isinstance(node, ast.If) and name in ("body", "orelse"):
        return _guard("if", node, f"if {text_of(node.test)}:", name == "body", node.test, depth)
    if isinstance(node, LOOPS) and name == "body":
        return _loop(node, depth)
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        if name == "finalbody":
            return _guard("try", node, "finally:", True, None, depth)
        if name == "body" and getattr(node, "handlers", None):
            return _guard("try", node, "try:", True, None, depth)
        return None
    if isinstance(node, ast.With | ast.AsyncWith):
        texts = [text_of(item.context_expr) for item in node.items]
        swallows = next((text for text in texts if pattern("swallows_exceptions").search(text)), None)
        return _guard("try", node, f"with {swallows}:", True, None, depth) if swallows else None
    if isinstance(node, ast.ExceptHandler):
        what = f"except {text_of(node.type)}:" if node.type else "except:"
        return _guard("try", node, what, True, None, depth)
    if isinstance(node, ast.match_case):
        return Guard("match", child.lineno, f"case {text_of(node.pattern)}:", True, _names(node.guard), # type: ignore[attr-defined]
                     (child.lineno, child.lineno), depth)  # type: ignore[attr-defined]  # fmt: skip
    return None


def _loop(node: ast.AST, depth: int) -> Guard:
    if isinstance(node, ast.While):
        text, test = f"while {text_of(node.test)}:", node.test
        counters: dict[str, None] = {}  # in the order of the source, which the report keeps
    else:
        assert isinstance(node, ast.For | ast.AsyncFor)
        text, test = f"for {target_text(node.target)} in {text_of(node.iter)}:", node.iter
        counters = dict.fromkeys(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
    for inner in ast.walk(node):
        if isinstance(inner, ast.AugAssign) and isinstance(inner.op, ast.Add | ast.Sub):
            counters.update(dict.fromkeys(_names(inner.target)))
    guard = _guard("loop", node, text, True, test, depth)
    return replace(guard, counters=tuple(counters), rounds=_rounds(node))


def target_text(node: ast.expr) -> str:
    """The loop's target as people write it: `i, (x, y)`, without the outer brackets that ast adds."""
    return ", ".join(map(text_of, node.elts)) if isinstance(node, ast.Tuple) and len(node.elts) > 1 else text_of(node)


def _rounds(loop: ast.AST) -> tuple[str, ...]:
    """The name that counts the rounds: `i` of `for i in range(n)` and of `for i, batch in enumerate(loader)`."""
    call = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    if not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
        return ()
    assert isinstance(loop, ast.For | ast.AsyncFor)
    name, target = dotted(call.func), loop.target
    further = (call.args[:1] + call.args[2:]) if name == "range" and len(call.args) > 1 else []
    if name == "enumerate" and isinstance(target, ast.Tuple):
        further, target = [*call.args[1:], *(k.value for k in call.keywords)], target.elts[0]
    elif name != "range":
        return ()
    alike = all(isinstance(each, ast.Constant) for each in further)
    return (target.id,) if alike and isinstance(target, ast.Name) else ()


def _jump(statement: ast.stmt, depth: int) -> list[Guard]:
    """The guards that an earlier statement of the line's block adds by leaving it.

    For the line to run, an `if …: return` or `except …: continue` was not taken, an `if …: … else: return` was.
    """
    if isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
        return [_skipped_handler(h, depth) for h in getattr(statement, "handlers", ()) if _jumps_out(h)]
    if not isinstance(statement, ast.If):
        return []
    found = []
    node: ast.If | None = statement
    while node is not None:
        if node.body and _leaves(node.body[-1]):
            found.append(_guard("return", node, f"if {text_of(node.test)}:", False, node.test, depth))
        following = node.orelse
        inner = following[0] if len(following) == 1 and isinstance(following[0], ast.If) else None
        if following and inner is None and _leaves(following[-1]):
            found.append(_guard("return", node, f"if {text_of(node.test)}:", True, node.test, depth))
        node = inner
    return found


def _skipped_handler(handler: ast.ExceptHandler, depth: int) -> Guard:
    what = f"except {text_of(handler.type)}:" if handler.type else "except:"
    return _guard("try", handler, what, False, None, depth)


def _jumps_out(handler: ast.ExceptHandler) -> bool:
    """True if the handler can skip what follows the try statement."""
    return any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in ast.walk(handler))


def _leaves(statement: ast.stmt) -> bool:
    """True if the statement leaves the block: return, continue, break, raise, or an exit of the process."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return dotted(statement.value.func) in names("exits_process")
    return isinstance(statement, _JUMPS)


def _in_expression(statement: ast.stmt, line: int, depth: int, called: frozenset[str]) -> list[Guard]:
    """`x and call()`, `call() if x else None`, `[call() for …]`: conditions and loops inside one statement."""
    calls = {n for n in ast.walk(statement) if isinstance(n, ast.Call) and holds(n, line)}
    # If a name picks some of them, only the conditions around these count.
    calls = {n for n in calls if _dotted_end(n.func) in called} or calls
    found = []
    for node in ast.walk(statement):
        if isinstance(node, ast.IfExp):
            if not any(calls.isdisjoint(ast.walk(arm)) for arm in (node.body, node.orelse)):
                continue  # both arms call, and nothing tells which of them it was
            for arm, taken in ((node.body, True), (node.orelse, False)):
                if not calls.isdisjoint(ast.walk(arm)):
                    found.append(_guard("expression", node, f"if {text_of(node.test)}", taken, node.test, depth))
        elif isinstance(node, ast.BoolOp):
            if any(not calls.isdisjoint(ast.walk(value)) for value in node.values[1:]):
                first = node.values[0]
                found.append(_guard("expression", node, text_of(first), isinstance(node.op, ast.And), first, depth))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            found += _in_comprehension(node, calls, depth)
    return found


def _dotted_end(node: ast.AST) -> str:
    """'all_reduce' of `dist.all_reduce` and of `self.groups[0].all_reduce`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _in_comprehension(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, calls: set[ast.Call], depth: int
) -> list[Guard]:
    """The loops and conditions that decide whether a comprehension's element is computed."""
    elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    if not calls <= {n for element in elements for n in ast.walk(element)} or not calls:
        return []
    found = []
    for each in node.generators:
        if not each.ifs:  # a filter explains a missing element better than what it goes over
            counters = tuple(n.id for n in ast.walk(each.target) if isinstance(n, ast.Name))
            text = f"for {target_text(each.target)} in {text_of(each.iter)}"
            found.append(replace(_guard("loop", node, text, True, each.iter, depth), counters=counters))
        found += [_guard("expression", test, f"if {text_of(test)}", True, test, depth) for test in each.ifs]
    return found


def _guard(kind: str, node: ast.AST, text: str, taken: bool, test: ast.AST | None, depth: int) -> Guard:
    first = getattr(node, "lineno", 0)
    return Guard(kind, first, text, taken, _names(test), (first, getattr(node, "end_lineno", first)), depth)


def _names(test: ast.AST | None) -> tuple[str, ...]:
    """Plain and dotted names in reading order: ('self.warm', 'rank')."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        name = dotted(node)
        if name:
            found.append(name)
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    if test is not None:
        visit(test)
    return tuple(dict.fromkeys(found))


def dotted(node: ast.AST) -> str:
    """'self.warm' of a name or of attributes of one; '' of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def text_of(node: ast.AST | None, limit: int = 80) -> str:
    """The source on one line, shortened."""
    if node is None:
        return ""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
