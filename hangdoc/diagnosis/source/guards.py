"""The guards of a line of source: the conditions, loops and handlers that decide whether it runs.

``guards`` walks from the function down to the line, one statement a step, and notes at each step the block that it
enters, the earlier statements of that block that could have left it, and at last the conditions within the line's own
statement. Example: of line 5 in

    1  for batch in loader:
    2      if batch is None:
    3          continue
    4      if rank == 0:
    5          batch.ok and save(batch)

the guards are the loop at 1, `if batch is None:` at 2 (not taken), `if rank == 0:` at 4 and `batch.ok` at 5.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.syntax import (
    FUNCTIONS,
    LOOPS,
    children,
    dotted,
    enclosing_function,
    has_blocks,
    holds,
    names_in,
    target_text,
    text_of,
    walk,
)
from hangdoc.diagnosis.source.within_expression import within_expression

_JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)

CONDITIONS = ("if", "return", "expression")
"""Kinds of guards that are one test, true on one side and false on the other."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition on the way to a line. ``taken``: the truth it must have for the line to run.

    Example: of the line in the `else` of `if warm:` → kind 'if', condition 'if warm:', taken False, names ('warm',).

    ``kind``: 'if', 'loop', 'try', 'match', 'expression', 'decorator', or 'return' for an earlier `if …: return` that
    was not taken. ``names`` are the plain and dotted names it tests; ``span`` is (first, last line of the statement);
    ``depth`` is how many guards are further out. ``counters`` are the names that a loop sets or adds to, and ``rounds``
    those that count its rounds, from the same start on every rank. ``in_header``: the line is not in the loop's body,
    but asks it for another round: `for batch in loader:` while the loader makes the next batch, the test of a `while`.
    ``goes_on``: the earlier jump is a `continue`, after which the loop goes on.
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
    in_header: bool = field(default=False, compare=False)
    goes_on: bool = field(default=False, compare=False)

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


def guards(tree: ast.AST, line: int, called: frozenset[str] = frozenset(), *, iterating: bool = False) -> list[Guard]:
    """The guards of ``line``, outermost first.

    ``called``: names of the functions that are being called from it, to pick the call among several on the line.
    ``iterating``: what is being called makes the next item of an iterator. Example: line 3 of `for x in xs: ⏎ if x: ⏎
    f(x)` → the loop at 1, the `if` at 2.
    """
    node: ast.AST = enclosing_function(tree, line)
    found = _decorators(node)
    while True:
        inner = _step(node, line, found, called)
        if inner is None:
            return found + _of_header(node, line, called, len(found), iterating=iterating)
        node = inner


def loops_around(tree: ast.AST | None, line: int) -> list[Guard]:
    """The loops among the guards of ``line``, outermost first; [] without a tree."""
    return [guard for guard in guards(tree, line) if guard.kind == "loop"] if tree is not None else []


def split_at_loop(around: Sequence[Guard]) -> tuple[Sequence[Guard], Sequence[Guard]]:
    """(what lies outside of the innermost loop, that loop and what lies in it); the second is empty without a loop."""
    at = max((at for at, guard in enumerate(around) if guard.kind == "loop"), default=len(around))
    return around[:at], around[at:]


def way_out_guards(tree: ast.AST, line: int) -> list[Guard]:
    """The conditions of the `break` and `return` in the loop at that line, as guards that were not taken inside of it.

    Example: `for x in xs: ⏎ if x > 9: ⏎ break` → `if x > 9:` of kind 'return'.
    """
    loop = next((node for node in walk(tree) if isinstance(node, LOOPS) and node.lineno == line), None)
    found: list[Guard] = []

    def visit(node: ast.AST, inner: bool) -> None:
        for child in children(node):
            if isinstance(child, FUNCTIONS):
                continue
            if isinstance(child, ast.If):
                for taken, last in ((False, child.body[-1]), (True, child.orelse[-1] if child.orelse else None)):
                    if isinstance(last, ast.Return) or (isinstance(last, ast.Break) and not inner):
                        found.append(_guard("return", child, f"if {text_of(child.test)}:", taken, child.test, 0))
            visit(child, inner or isinstance(child, LOOPS))

    if loop is not None:
        visit(loop, False)
    return found


def quiet_guard(tree: ast.AST) -> Guard | None:
    """The first condition that turns the synchronisation of gradients off in one arm alone, taken where it stays on.

    Example: `nullcontext() if last else model.no_sync()` → 'if last', taken.
    """
    for node in walk(tree):
        if not isinstance(node, ast.If | ast.IfExp):
            continue
        arms = [[node.body], [node.orelse]] if isinstance(node, ast.IfExp) else [node.body, node.orelse]
        off = [any(_is_quiet(n) for each in arm for n in walk(each)) for arm in arms]
        if off[0] != off[1]:
            colon = ":" if isinstance(node, ast.If) else ""
            kind = "if" if colon else "expression"
            return _guard(kind, node, f"if {text_of(node.test)}{colon}", off[1], node.test, 0)
    return None


def _is_quiet(node: ast.AST) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name in names("quiet_round") and name != "nullcontext"


def _of_header(node: ast.AST, line: int, called: frozenset[str], depth: int, *, iterating: bool) -> list[Guard]:
    """The guards of a line in the header of a statement: the loop that it begins a round of, conditions in its test.

    Example: in `while ready and sync():`, of the call of sync → the loop itself, and `ready`.
    """
    if not isinstance(node, ast.If | ast.While | ast.For | ast.AsyncFor):
        return []
    test = node.test if isinstance(node, ast.If | ast.While) else node.iter
    if not holds(test, line):
        return []
    # The iterable of a `for` is computed once, before the loop; its items are made in each round.
    loops = isinstance(node, ast.While) or (isinstance(node, ast.For | ast.AsyncFor) and iterating)
    found = [replace(_loop(node, depth), in_header=True)] if loops else []
    return found + ([] if isinstance(node, ast.For | ast.AsyncFor) else _in_expression(test, line, depth, called))


def _decorators(node: ast.AST) -> list[Guard]:
    texts = [(each, text_of(each)) for each in getattr(node, "decorator_list", ())]
    return [
        _guard("decorator", each, f"@{text}", True, None, 0)
        for each, text in texts
        if pattern("decides_about_call").search(text)
    ]


def guards_in_expression(tree: ast.AST, line: int, called: frozenset[str]) -> list[Guard]:
    """The guards within the line's own statement: a comprehension's frame has no others."""
    statements = [n for n in walk(tree) if isinstance(n, ast.stmt) and not has_blocks(n) and holds(n, line)]
    return _in_expression(statements[-1], line, 0, called) if statements else []


def _step(node: ast.AST, line: int, found: list[Guard], called: frozenset[str]) -> ast.AST | None:
    """The statement in a block of ``node`` that holds the line; ``found`` is extended by the guards on the way to it.

    None where no statement further in holds the line.
    """
    for name, block in _blocks(node):
        index = next((i for i, child in enumerate(block) if _case_holds(child, line)), None)
        if index is None:
            continue
        child = block[index]
        if not isinstance(node, FUNCTIONS) or name == "body":
            found += [g for g in (_own(node, name, child, len(found)),) if g]
        if name == "orelse" and isinstance(node, ast.Try) and node.handlers:  # left out after an exception
            found.append(_skipped_handler(len(found), *node.handlers))
        if name == "orelse" and isinstance(node, LOOPS):  # left out after a `break`
            found += way_out_guards(node, node.lineno)
        depth = len(found)
        found += [g for earlier in block[:index] if isinstance(earlier, ast.stmt) for g in _jump(earlier, depth)]
        if isinstance(child, ast.stmt) and not has_blocks(child):
            found += _in_expression(child, line, len(found), called)
        return child
    return None


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.AST]]]:
    """(field, statements) of each block of a statement. Example: 'body' and 'orelse' of an `if` with an `else`."""
    for name, block in ast.iter_fields(node):
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt | ast.ExceptHandler | ast.match_case):
            yield name, block


def _case_holds(child: ast.AST, line: int) -> bool:
    """True if the line is within the statement, or within the body of a `case`, which has no line of its own."""
    if isinstance(child, ast.match_case):
        return any(holds(s, line) for s in child.body)
    return holds(child, line)


def _own(node: ast.AST, name: str, child: ast.AST, depth: int) -> Guard | None:
    """The guard of one block of a compound statement; ``name`` is the block's field, ``child`` the statement in it.

    Example: the block 'orelse' of `if warm:` → that `if`, not taken.
    """
    # Many branches, because it is a table of Python's compound statements: one `if` for each.
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
    if isinstance(node, ast.Match) and isinstance(child, ast.match_case):
        tested = (*names_in(node.subject), *names_in(child.guard))
        return Guard("match", child.pattern.lineno, f"case {_as_matched(child)}:", True, tested, _span(child), depth)
    return None


def _as_matched(case: ast.match_case) -> str:
    return text_of(case.pattern) + (f" if {text_of(case.guard)}" if case.guard is not None else "")


def _span(case: ast.match_case) -> tuple[int, int]:
    """(first, last) line of a `case`, which has none of its own."""
    last = case.body[-1]
    return case.pattern.lineno, last.end_lineno or last.lineno


# Asked of every line in the loop, and all of the loop is walked for it.
@lru_cache(maxsize=4096)
def _loop(node: ast.AST, depth: int) -> Guard:
    """A loop's guard with its counters: what a `for` assigns, and what any loop adds to or subtracts from."""
    if isinstance(node, ast.While):
        text, test = f"while {text_of(node.test)}:", node.test
        counters: dict[str, None] = {}  # in the order of the source, which the report keeps
    else:
        assert isinstance(node, ast.For | ast.AsyncFor)
        text, test = f"for {target_text(node.target)} in {text_of(node.iter)}:", node.iter
        counters = dict.fromkeys(n.id for n in walk(node.target) if isinstance(n, ast.Name))
    for inner in walk(node):
        if isinstance(inner, ast.AugAssign) and isinstance(inner.op, ast.Add | ast.Sub):
            counters.update(dict.fromkeys(names_in(inner.target)))
    guard = _guard("loop", node, text, True, test, depth)
    return replace(guard, counters=tuple(counters), rounds=_rounds(node))


def _rounds(loop: ast.AST) -> tuple[str, ...]:
    """The name that counts the rounds from the same start on every rank, as a tuple of one; () where there is none.

    Examples: `i` of `for i in range(n)` and of `for i, batch in enumerate(loader)`; () of `range(first, n)`.
    """
    if not isinstance(loop, ast.For | ast.AsyncFor) or not isinstance(loop.iter, ast.Call):
        return ()
    call, target, function = loop.iter, loop.target, dotted(loop.iter.func)
    if not call.args or isinstance(call.args[0], ast.Starred):
        return ()
    if function == "range":
        start = [*call.args[:1], *call.args[2:]] if len(call.args) > 1 else []  # where it starts, and its step
    elif function == "enumerate" and isinstance(target, ast.Tuple):
        start, target = [*call.args[1:], *(k.value for k in call.keywords)], target.elts[0]
    else:
        return ()
    alike = all(isinstance(each, ast.Constant) for each in start)
    return (target.id,) if alike and isinstance(target, ast.Name) else ()


def _jump(statement: ast.stmt, depth: int) -> list[Guard]:
    """The guards that an earlier statement of the line's block adds by leaving it.

    For the line to run, an `if …: return` or `except …: continue` was not taken, an `if …: … else: return` was.
    Example: `if batch is None: continue` → that condition, of kind 'return', not taken.
    """
    if isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
        return [_skipped_handler(depth, h) for h in getattr(statement, "handlers", ()) if _jumps_out(h)]
    if not isinstance(statement, ast.If):
        return []
    found = []
    node: ast.If | None = statement
    while node is not None:
        if node.body and _leaves(node.body[-1]):
            guard = _guard("return", node, f"if {text_of(node.test)}:", False, node.test, depth)
            found.append(replace(guard, goes_on=isinstance(node.body[-1], ast.Continue)))
        following = node.orelse
        inner = following[0] if len(following) == 1 and isinstance(following[0], ast.If) else None
        if following and inner is None and _leaves(following[-1]):
            guard = _guard("return", node, f"if {text_of(node.test)}:", True, node.test, depth)
            found.append(replace(guard, goes_on=isinstance(following[-1], ast.Continue)))
        node = inner
    return found


def jumps_further_in(tree: ast.AST, line: int, within: tuple[int, int] | None) -> list[Guard]:
    """The conditions before the line that `return` or `continue` from further in than its own block.

    ``within``: the lines of the loop that holds it. Example: `if last: ⏎ if not ok.any(): ⏎ return` before the line →
    the second `if`, and not the one around it; the same in an `else:`.
    """
    first = within[0] if within is not None else 0
    return [
        _guard("return", node, f"if {text_of(node.test)}:", False, node.test, 0)
        for outer in walk(enclosing_function(tree, line))
        if isinstance(outer, ast.If) and outer.lineno > first and (outer.end_lineno or 0) < line
        for node in (*outer.body, *outer.orelse)
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Continue)
        if node.col_offset > outer.col_offset  # an `elif` is in the block of its `if`
    ]


def handlers_of(tree: ast.AST, guard: Guard) -> list[tuple[int, str]]:
    """(line, text) of what catches an exception of a body that is tried: its handlers, or the `with` itself."""
    handlers = (
        handler
        for node in walk(tree)
        if getattr(node, "lineno", 0) == guard.line
        for handler in getattr(node, "handlers", ())
    )
    return [_skipped_handler(0, handler).place for handler in handlers] or [guard.place]


def _skipped_handler(depth: int, *handlers: ast.ExceptHandler) -> Guard:
    types = ", ".join(text_of(each.type) for each in handlers if each.type)
    return _guard("try", handlers[0], f"except {types}:" if types else "except:", False, None, depth)


def _jumps_out(handler: ast.ExceptHandler) -> bool:
    """True if the handler can skip what follows the try statement."""
    return any(isinstance(node, ast.Return | ast.Continue | ast.Break) for node in walk(handler))


def _leaves(statement: ast.stmt) -> bool:
    """True if the statement leaves the block: return, continue, break, raise, or an exit of the process."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return dotted(statement.value.func) in names("exits_process")
    return isinstance(statement, _JUMPS)


def _in_expression(statement: ast.AST, line: int, depth: int, called: frozenset[str]) -> list[Guard]:
    found = within_expression(statement, line, called)
    return [
        replace(_guard(each.kind, each.node, each.text, each.taken, each.test, depth), counters=each.counters)
        for each in found
    ]


def _guard(kind: str, node: ast.AST, text: str, taken: bool, test: ast.AST | None, depth: int) -> Guard:
    first = getattr(node, "lineno", 0)
    return Guard(kind, first, text, taken, names_in(test), (first, getattr(node, "end_lineno", first)), depth)
