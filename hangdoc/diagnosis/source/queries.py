"""Facts of a piece of source that guards do not give: how a loop ends, what raises, where a name is set.

``tree`` is a captured function or module, and lines are those of its file; a line that holds nothing of the kind gives
False, 0 or an empty list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import UnionType

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.syntax import (
    FUNCTIONS,
    children,
    dotted,
    enclosing_function,
    function_name,
    has_blocks,
    holds,
    last_name,
    text_of,
    walk,
)


def turns_quiet(tree: ast.AST) -> bool:
    """True if the code names what turns the synchronisation of gradients off."""
    return any(getattr(n, "attr", getattr(n, "id", "")) in names("quiet_round") for n in walk(tree))


def contexts_around(tree: ast.AST, line: int) -> list[ast.expr]:
    """What makes the contexts of the `with` statements around the line; of a name what it is set to there.

    Examples: in the body of `with self.context(model):` → [self.context(model)]; of `context = nullcontext() if last
    else model.no_sync()` and `with context:` → [nullcontext() if last else model.no_sync()].
    """
    items = [
        item.context_expr
        for node in walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith) and any(holds(each, line) for each in node.body)
        for item in node.items
    ]
    named = {each.id for each in items if isinstance(each, ast.Name)}
    sets = [node for node in walk(tree) if isinstance(node, ast.Assign) and node.lineno < line]
    values = [node.value for node in sets if named & {t.id for t in node.targets if isinstance(t, ast.Name)}]
    return [*(each for each in items if not isinstance(each, ast.Name)), *values]


def group_given(tree: ast.AST, line: int) -> str:
    """The group that a call at the line is given, as it is written; '' where none is."""
    return text_of(group_expression(tree, line))


def group_expression(tree: ast.AST, line: int) -> ast.expr | None:
    """The expression of the group that a call at the line is given; None where none is."""
    calls = (n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, line))
    return next((k.value for call in calls for k in call.keywords if k.arg in names("group_argument")), None)


def evaluated_before(tree: ast.AST, line: int, first: str, second: str) -> bool:
    """True if the line calls each function once, and ``first`` returns before ``second`` is called.

    Examples: `second(first())`, `first() + second()`.
    """
    statement = next((n for n in walk(tree) if isinstance(n, ast.stmt) and not has_blocks(n) and holds(n, line)), None)
    order: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return
        for child in children(node):
            visit(child)
        if isinstance(node, ast.Call):
            order.append(node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func))

    if statement is not None:
        visit(statement)
    return order.count(first) == order.count(second) == 1 and order.index(first) < order.index(second)


def is_generator(tree: ast.AST, line: int) -> bool:
    """True if the function around the line yields, so that its body runs when its next item is asked for."""
    function = enclosing_function(tree, line)
    inner = {
        each for node in walk(function) if isinstance(node, FUNCTIONS) and node is not function for each in walk(node)
    }
    return any(isinstance(n, ast.Yield | ast.YieldFrom) and n not in inner for n in walk(function))


def leads_to(tree: ast.AST, line: int, function: str) -> bool:
    """True if a statement after the one at ``line``, in the same block, calls ``function``.

    Example: `step() ⏎ dist.barrier()`, line 1 and 'barrier' → True.
    """
    for node in walk(tree):
        for _, block in ast.iter_fields(node):
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            after = [s for s in block if s.lineno > line]
            if any(holds(s, line) and not has_blocks(s) for s in block):
                return any(dotted(n.func).endswith(function) for n in calls_in(after))
    return False


def works_before(tree: ast.AST, tried: int, line: int) -> bool:
    """True if the body of the try or `with` at ``tried`` calls anything before ``line``: that call may raise.

    Example: `try: ⏎ load() ⏎ dist.barrier()`, tried 1 and line 3 → True, line 2 → False.
    """
    for node in walk(tree):
        body = getattr(node, "body", None)
        if getattr(node, "lineno", 0) != tried or not isinstance(node, ast.stmt) or not isinstance(body, list):
            continue
        ahead = [s for s in body if s.lineno <= line]
        before = [s for s in ahead if not holds(s, line)]
        return any(calls_in(before)) or sum(1 for _ in calls_in([s for s in ahead if holds(s, line)])) > 1
    return False


def store_sets(tree: ast.AST) -> list[int]:
    """Lines of calls that may set a key of a store: `store.set(key, value)`."""
    calls = (n for n in walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return sorted(n.lineno for n in calls if getattr(n.func, "attr", "") in names("store_setter") and len(n.args) > 1)


def group_calls(tree: ast.AST) -> list[int]:
    """Lines of calls that make a process group: `dist.new_group(members)`."""
    return _lines_of_calls(tree, names("makes_group"))


def calls_of(tree: ast.AST, function: str) -> list[int]:
    """Lines of calls of a function or method of that name."""
    return _lines_of_calls(tree, (function,))


def _lines_of_calls(
    tree: ast.AST, called: tuple[str, ...], how: type | UnionType = ast.Attribute | ast.Name
) -> list[int]:
    calls = (n.func for n in walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, how))
    return sorted({n.lineno for n in calls if getattr(n, "attr", getattr(n, "id", "")) in called})


def raises(tree: ast.AST, line: int) -> bool:
    """True if the `if` at that line ends in a `raise`."""
    return _ends_in(tree, line, ast.Raise)


def without_handing_on(tree: ast.AST, around: list[Guard]) -> list[Guard]:
    """The guards around a line, the outermost first, without the tests in a handler that hand its exception on: who did
    not go on past them would have ended by it, and that a rank came to the handler at all is what tells it apart.

    Example: [`except RuntimeError:`, `if "memory" not in str(err):` with `raise`] → [`except RuntimeError:`].
    """

    def hands_on(guard: Guard) -> bool:
        handlers = (g for g in around if g.kind == "try" and g.taken and g.condition.startswith("except"))
        return guard.kind == "return" and raises(tree, guard.line) and any(g.holds(guard.line) for g in handlers)

    return [guard for guard in around if not hands_on(guard)]


def _ends_in(tree: ast.AST, line: int, jump: type[ast.stmt]) -> bool:
    ifs = (node for node in walk(tree) if isinstance(node, ast.If) and node.lineno == line)
    return any(isinstance(node.body[-1], jump) for node in ifs)


def calls_in(statements: list[ast.stmt]) -> Iterator[ast.Call]:
    """All calls in the statements."""
    for statement in statements:
        yield from (node for node in walk(statement) if isinstance(node, ast.Call))


def assignments(tree: ast.AST, name: str) -> list[int]:
    """Lines that assign to a plain or dotted name. Example: `a, self.b = 1, 2` at line 3, 'self.b' → [3]."""
    lines = []
    for node in walk(tree):
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = [node.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            if any(dotted(part) == name for part in parts):
                lines.append(getattr(node, "lineno", 0))
    return sorted(lines)


def sets_attribute(tree: ast.AST, name: str) -> bool:
    """True if some function in the tree, other than `__init__`, sets an attribute of that name, of any object, or
    changes it in place.

    Example: 'tag' of `def step(self): ⏎ self.tag += 1` → True.
    """
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store | ast.Del):
            if function_name(tree, node.lineno) != "__init__":
                return True
        elif isinstance(node, ast.Call) and dotted(node.func) == "setattr":
            return True
    return False


def binds(tree: ast.AST, line: int, name: str) -> bool:
    """True if the name is a parameter or a local variable of the function around the line."""
    here = enclosing_function(tree, line)
    if not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    given = {n.arg for n in walk(here.args) if isinstance(n, ast.arg)}
    stored = (n.id for n in walk(here) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return name in given or name in stored


def set_after(tree: ast.AST, guard: Guard, line: int) -> set[str]:
    """The counters of a loop that its body sets only after the line: a side that left at the loop's header has the same
    count there as one that is at the line, in the round that the first did not begin.

    Example: of `while go(): ⏎ sync() ⏎ step += 1`, line 2 → {'step'}.
    """
    first, last = guard.span
    places = {name: [at for at in assignments(tree, name) if first <= at <= last] for name in guard.counters}
    return {name for name, lines in places.items() if lines and min(lines) > line}


def set_in_some_rounds(tree: ast.AST, loop: Guard) -> set[str]:
    """The counters of a loop that its body sets under a condition: they count no rounds. Example: of `for x in xs: ⏎ if
    bad(x): ⏎ skipped += 1` → {'skipped'}."""
    first, last = loop.span
    places = {name: [at for at in assignments(tree, name) if first < at <= last] for name in loop.counters}
    return {
        name
        for name, lines in places.items()
        if any(g.kind in ("if", "match") and g.line > first for line in lines for g in guards(tree, line))
    }


def adds_what_it_finds(tree: ast.AST, loop: Guard) -> set[str]:
    """The counters of a loop to which its body adds what a call finds in a round's data: equally many rounds may give
    unequal sums. Not `len(…)`, which is alike for batches of one size. Example: of `for x, mask in xs: ⏎ spent +=
    int(mask.sum())` → {'spent'}."""
    added = [n for n in walk(tree) if isinstance(n, ast.AugAssign) and loop.span[0] < n.lineno <= loop.span[1]]
    return {
        name
        for node in added
        if (name := dotted(node.target)) in loop.counters
        and any(isinstance(n, ast.Call) and last_name(n.func) != "len" for n in walk(node.value))
    }


def called_methods(tree: ast.AST, name: str) -> list[int]:
    """Lines of statements that only call a method of the name: `pending.clear()`, which may well change it."""
    return [
        node.lineno
        for node in walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and dotted(node.value.func.value) == name
    ]


def first_assigned_value(tree: ast.AST, line: int) -> str:
    """The source of the assignment at that line, shortened."""
    for node in walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and getattr(node, "lineno", 0) == line:
            return text_of(node)
    return ""


def launches(tree: ast.AST) -> list[int]:
    """Lines of calls that start the job's other ranks: `fabric.launch()`."""
    return _lines_of_calls(tree, names("launches_ranks"), ast.Attribute)


def assignments_beside(tree: ast.AST, line: int, name: str) -> list[int]:
    """The lines that assign to the name in the function, or module, around the line."""
    here = enclosing_function(tree, line)
    return [n for n in assignments(here, name) if enclosing_function(tree, n) is here]
