"""Facts of a piece of source that guards do not give: how a loop ends, what raises, where a name is set.

``tree`` is a captured function or module, and lines are those of its file; a line that holds nothing of the kind gives
False, 0 or an empty list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import UnionType

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import Guard, guards, way_out_guards
from hangdoc.diagnosis.source.syntax import (
    FUNCTIONS,
    LOOPS,
    dotted,
    enclosing_function,
    function_name,
    has_blocks,
    holds,
    target_text,
    text_of,
)


def _loop_at(tree: ast.AST, line: int) -> ast.For | ast.AsyncFor | ast.While | ast.comprehension | None:
    """The loop that begins at the line; where none does, the one comprehension there."""
    loop = next((n for n in ast.walk(tree) if isinstance(n, LOOPS) and n.lineno == line), None)
    if loop is not None:
        return loop
    within = [n for n in ast.walk(tree) if isinstance(n, ast.comprehension) and n.target.lineno == line]
    return within[0] if len(within) == 1 else None


def ways_out(tree: ast.AST, line: int) -> list[tuple[int, str]]:
    """(line, text) of each `if …: break` or `if …: return` in the loop at that line.

    Example: `for x in xs: ⏎ if x > 9: ⏎ break` → [(2, 'if x > 9:')]; a `break` of an inner loop does not count.
    """
    return [(guard.line, guard.condition) for guard in way_out_guards(tree, line)]


def has_quiet_rounds(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line turns the synchronisation of gradients off in some rounds.

    DDP's and Accelerate's no_sync and FSDP2's set_requires_gradient_sync do that.
    """
    loop = _loop_at(tree, line)
    return loop is not None and turns_quiet(loop)


def turns_quiet(tree: ast.AST) -> bool:
    """True if the code names what turns the synchronisation of gradients off."""
    return any(getattr(n, "attr", getattr(n, "id", "")) in names("quiet_round") for n in ast.walk(tree))


def contexts_around(tree: ast.AST, line: int) -> list[str]:
    """The names of the functions that make the contexts of the `with` statements around the line.

    Example: in the body of `with self.context(model):` → ['context'].
    """
    items = [
        item.context_expr
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith) and any(holds(each, line) for each in node.body)
        for item in node.items
    ]
    called = [dotted(each.func).rpartition(".")[2] for each in items if isinstance(each, ast.Call)]
    return [name for name in called if name]


def quiet_condition(tree: ast.AST) -> tuple[int, str] | None:
    """(line, text) of the first condition that turns the synchronisation of gradients off in one of its arms.

    Example: `with nullcontext() if last else model.no_sync():` → 'if last'.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.If | ast.IfExp):
            continue
        arms = [[node.body], [node.orelse]] if isinstance(node, ast.IfExp) else [node.body, node.orelse]
        if any(turns_quiet(each) for arm in arms for each in arm):
            return node.lineno, f"if {text_of(node.test)}" + (":" if isinstance(node, ast.If) else "")
    return None


def group_by_item(tree: ast.AST, line: int) -> tuple[str, int, str] | None:
    """(the group, line and text of the `for`) if the loop's item chooses the group of the call at that line.

    Example: `for task in tasks: ⏎ dist.all_reduce(x, group=groups[task])` → ('groups[task]', 1, 'for task in tasks:').
    """
    given = _group_given(tree, line)
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.AsyncFor) and holds(n, line)]
    for loop in sorted(loops, key=lambda n: n.lineno, reverse=True):
        if given is not None and _simple_names(loop.target) & _simple_names(given):
            return text_of(given), loop.lineno, f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
    return None


def group_given(tree: ast.AST, line: int) -> str:
    """The group that a call at the line is given, as it is written; '' where none is."""
    return text_of(_group_given(tree, line))


def _group_given(tree: ast.AST, line: int) -> ast.expr | None:
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and holds(n, line))
    return next((k.value for call in calls for k in call.keywords if k.arg in names("group_argument")), None)


def shared_item_loop(tree: ast.AST, lines: tuple[int, int]) -> tuple[int, str] | None:
    """(line, text) of the innermost `for` around both lines, if its items decide which of the two is run.

    Example: `for kind in kinds: ⏎ if kind == "a": f() ⏎ else: g()`, with the lines of f and g → the `for`.
    """
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.AsyncFor) and all(holds(n, x) for x in lines)]
    if not loops:
        return None
    loop = max(loops, key=lambda n: n.lineno)
    # What counts the rounds is the same everywhere.
    counts = {name for guard in guards(tree, max(lines)) if guard.line == loop.lineno for name in guard.rounds}
    items = _simple_names(loop.target) - counts
    if any(items & _simple_names(_test_of(node)) and _separates(node, lines) for node in ast.walk(loop)):
        return loop.lineno, f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
    return None


def _separates(node: ast.AST, lines: tuple[int, int]) -> bool:
    """True if the statement holds one of the lines, but not both in the same block. Example: `if x: f() else: g()`."""
    return any(holds(node, line) for line in lines) and _arm(node, lines[0]) != _arm(node, lines[1])


def _test_of(node: ast.AST) -> ast.expr | None:
    """What an `if` or a `match` tests."""
    return node.test if isinstance(node, ast.If) else node.subject if isinstance(node, ast.Match) else None


def _simple_names(node: ast.AST | None) -> set[str]:
    """The names in an expression, without attributes. Example: `self.kind == kind` → {'self', 'kind'}."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()


def item_loop(tree: ast.AST, line: int, function: str) -> tuple[int, str] | None:
    """(line, text) of the innermost loop around the line whose item is called there, comprehensions included.

    Examples: `for part in parts: part.function()`, `for step in steps: step(x)`.
    """
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        loops = [node] if isinstance(node, ast.For | ast.AsyncFor) else getattr(node, "generators", [])
        if not loops or not holds(node, line):
            continue
        called = {_called_item(n, function) for n in ast.walk(node) if isinstance(n, ast.Call) and holds(n, line)}
        found += [
            (getattr(node, "lineno", 0), f"for {target_text(loop.target)} in {text_of(loop.iter)}")
            for loop in loops
            if called & _simple_names(loop.target)
        ]
    return max(found, default=None)


def _called_item(call: ast.Call, function: str) -> str:
    if isinstance(call.func, ast.Attribute):
        return dotted(call.func.value) if call.func.attr == function else ""
    return dotted(call.func)


def _arm(node: ast.AST, line: int) -> int:
    """Which block of the statement holds the line; -1: none."""
    blocks = [case.body for case in node.cases] if isinstance(node, ast.Match) else []
    blocks += [node.body, node.orelse] if isinstance(node, ast.If) else []
    return next((i for i, block in enumerate(blocks) if any(holds(s, line) for s in block)), -1)


def ends_alike(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line has the same bound on every rank: `while True`, `range(10)`, a literal."""
    loop = _loop_at(tree, line)
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant)
    call = loop.iter if loop is not None else None
    if isinstance(call, ast.Tuple | ast.List):
        return not any(isinstance(each, ast.Starred) for each in call.elts)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in names("model_part"):
        return True
    fixed = isinstance(call, ast.Call) and dotted(call.func) in ("range", "itertools.count", "count")
    return fixed and isinstance(call, ast.Call) and all(isinstance(a, ast.Constant) for a in call.args)


def goes_over_layers(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line is in a module's forward() and calls each part of the module that it goes over:
    every rank has the same model.

    Example: `for layer in self.layers: ⏎ x = layer(x)`; not of `self.callbacks` in another function.
    """
    loop = _loop_at(tree, line)
    if not isinstance(loop, ast.For) or function_name(tree, line) not in names("module_forward"):
        return False
    items, parts = _simple_names(loop.target), {dotted(n) for n in ast.walk(loop.iter)}
    called = {dotted(n.func).partition(".")[0] for n in ast.walk(loop) if isinstance(n, ast.Call)}
    return bool(items & called) and any(part.startswith("self.") for part in parts)


def fixed_rounds(tree: ast.AST, line: int) -> int:
    """How often a `for … in range(…)` of constants, or over a literal, goes round at that line; 0 for other loops.

    Examples: `for i in range(2, 6):` → 4, `for name in ("a", "b"):` → 2.
    """
    loop = _loop_at(tree, line)
    call = loop.iter if isinstance(loop, ast.For | ast.comprehension) else None
    if isinstance(call, ast.Tuple | ast.List):
        return len(call.elts) if ends_alike(tree, line) else 0
    if not isinstance(call, ast.Call) or dotted(call.func) != "range":
        return 0
    numbers = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]
    return len(range(*numbers)) if 1 <= len(numbers) == len(call.args) <= 2 else 0


def last_of_range(tree: ast.AST, line: int) -> tuple[str, ast.expr] | None:
    """(the item's name, what it is in the last round) of a `for … in range(…)` at that line, in steps of one.

    Example: `for step in range(first, first + steps):` → ('step', `first + steps - 1`).
    """
    loop = _loop_at(tree, line)
    call = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(call, ast.Call) or dotted(call.func) != "range" or not 1 <= len(call.args) <= 2:
        return None
    name = dotted(loop.target) if isinstance(loop, ast.For) else ""
    return (name, ast.BinOp(call.args[-1], ast.Sub(), ast.Constant(1))) if name else None


def calls_its_items(tree: ast.AST, line: int) -> bool:
    """True if the `for` at that line calls its items, or hands them to a function: they are parts of a program, as the
    layers of a model are, and no data.

    Examples: `for layer in self.layers: x = layer(x)`, `for i, block in enumerate(blocks): x = checkpoint(block, x)`.
    What a call makes (`for batch in self.batches():`) may be other things each time: → False.
    """
    loop = _loop_at(tree, line)
    if not isinstance(loop, ast.For):
        return False
    source = loop.iter
    while isinstance(source, ast.Call) and dotted(source.func) in names("wraps_items") and source.args:
        source = source.args[0]
    if isinstance(source, ast.Call | ast.GeneratorExp):
        return False
    items = _simple_names(loop.target)
    calls = list(_calls(loop.body))
    handed = (c.args[0] for c in calls if c.args and dotted(c.func).rpartition(".")[2] in names("calls_its_argument"))
    return not items.isdisjoint(dotted(each) for each in (*(call.func for call in calls), *handed))


def evaluated_before(tree: ast.AST, line: int, first: str, second: str) -> bool:
    """True if the line calls each function once, and ``first`` returns before ``second`` is called.

    Examples: `second(first())`, `first() + second()`.
    """
    statement = next(
        (n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not has_blocks(n) and holds(n, line)), None
    )
    order: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return
        for child in ast.iter_child_nodes(node):
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
        each
        for node in ast.walk(function)
        if isinstance(node, FUNCTIONS) and node is not function
        for each in ast.walk(node)
    }
    return any(isinstance(n, ast.Yield | ast.YieldFrom) and n not in inner for n in ast.walk(function))


def leads_to(tree: ast.AST, line: int, function: str) -> bool:
    """True if a statement after the one at ``line``, in the same block, calls ``function``.

    Example: `step() ⏎ dist.barrier()`, line 1 and 'barrier' → True.
    """
    for node in ast.walk(tree):
        for _, block in ast.iter_fields(node):
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            after = [s for s in block if s.lineno > line]
            if any(holds(s, line) and not has_blocks(s) for s in block):
                return any(dotted(n.func).endswith(function) for n in _calls(after))
    return False


def works_before(tree: ast.AST, tried: int, line: int) -> bool:
    """True if the body of the try or `with` at ``tried`` calls anything before ``line``: that call may raise.

    Example: `try: ⏎ load() ⏎ dist.barrier()`, tried 1 and line 3 → True, line 2 → False.
    """
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if getattr(node, "lineno", 0) != tried or not isinstance(node, ast.stmt) or not isinstance(body, list):
            continue
        ahead = [s for s in body if s.lineno <= line]
        before = [s for s in ahead if not holds(s, line)]
        return any(_calls(before)) or sum(1 for _ in _calls([s for s in ahead if holds(s, line)])) > 1
    return False


def tries_again(tree: ast.AST, tried: int) -> bool:
    """True if the try at that line leaves the loop around it when its body succeeds: only an exception repeats it.

    Example: `while True: ⏎ try: ⏎ return load() ⏎ except OSError: ⏎ pass`, tried 2 → True.
    """
    for loop in ast.walk(tree):
        for node in ast.walk(loop) if isinstance(loop, LOOPS) else ():
            if isinstance(node, ast.Try) and node.lineno == tried:
                return any(isinstance(block[-1], ast.Return | ast.Break) for block in (node.body, node.orelse) if block)
    return False


def store_sets(tree: ast.AST) -> list[int]:
    """Lines of calls that may set a key of a store: `store.set(key, value)`."""
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return sorted(n.lineno for n in calls if getattr(n.func, "attr", "") in names("store_setter") and len(n.args) > 1)


def launches(tree: ast.AST) -> list[int]:
    """Lines of calls that start the job's other ranks: `fabric.launch()`."""
    return _lines_of_calls(tree, names("launches_ranks"), ast.Attribute)


def group_calls(tree: ast.AST) -> list[int]:
    """Lines of calls that make a process group: `dist.new_group(members)`."""
    return _lines_of_calls(tree, names("makes_group"))


def calls_of(tree: ast.AST, function: str) -> list[int]:
    """Lines of calls of a function or method of that name."""
    return _lines_of_calls(tree, (function,))


def _lines_of_calls(
    tree: ast.AST, called: tuple[str, ...], how: type | UnionType = ast.Attribute | ast.Name
) -> list[int]:
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, how))
    return sorted({n.lineno for n in calls if getattr(n, "attr", getattr(n, "id", "")) in called})


def is_retry_loop(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line repeats only after an exception: its body is a try that leaves the loop."""
    loop = _loop_at(tree, line)
    body = loop.body if isinstance(loop, LOOPS) else []
    return any(isinstance(each, ast.Try) and tries_again(tree, each.lineno) for each in body)


def raises(tree: ast.AST, line: int) -> bool:
    """True if the `if` at that line ends in a `raise`."""
    return any(
        isinstance(node, ast.If) and node.lineno == line and isinstance(node.body[-1], ast.Raise)
        for node in ast.walk(tree)
    )


def _calls(statements: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in statements:
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def assignments(tree: ast.AST, name: str) -> list[int]:
    """Lines that assign to a plain or dotted name. Example: `a, self.b = 1, 2` at line 3, 'self.b' → [3]."""
    lines = []
    for node in ast.walk(tree):
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


def binds(tree: ast.AST, line: int, name: str) -> bool:
    """True if the name is a parameter or a local variable of the function around the line."""
    here = enclosing_function(tree, line)
    if not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    given = {n.arg for n in ast.walk(here.args) if isinstance(n, ast.arg)}
    stored = (n.id for n in ast.walk(here) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return name in given or name in stored


def set_after(tree: ast.AST, guard: Guard, line: int) -> set[str]:
    """The counters of a `while` that its body sets only after the line: a side that left at the loop's test has the
    same count there as one that is at the line, in the round that the first did not begin.

    Example: of `while go(): ⏎ sync() ⏎ step += 1`, line 2 → {'step'}.
    """
    if not guard.condition.startswith("while "):
        return set()
    first, last = guard.span
    places = {name: [at for at in assignments(tree, name) if first <= at <= last] for name in guard.counters}
    return {name for name, lines in places.items() if lines and min(lines) > line}


def assignments_beside(tree: ast.AST, line: int, name: str) -> list[int]:
    """The lines that assign to the name in the function, or module, around the line."""
    here = enclosing_function(tree, line)
    return [n for n in assignments(here, name) if enclosing_function(tree, n) is here]


def called_methods(tree: ast.AST, name: str) -> list[int]:
    """Lines of statements that only call a method of the name: `pending.clear()`, which may well change it."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and dotted(node.value.func.value) == name
    ]


def first_assigned_value(tree: ast.AST, line: int) -> str:
    """The source of the assignment at that line, shortened."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and getattr(node, "lineno", 0) == line:
            return text_of(node)
    return ""
