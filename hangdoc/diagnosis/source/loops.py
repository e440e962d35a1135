"""What the syntax tree of a function shows of its loops: their ways out, their items, how many rounds they have."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import guards, way_out_guards
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.syntax import (
    LOOPS,
    dotted,
    enclosing_function,
    holds,
    innermost_loop,
    last_name,
    names_in,
    target_text,
    text_of,
    walk,
)


def _loop_at(tree: ast.AST, line: int) -> ast.For | ast.AsyncFor | ast.While | ast.comprehension | None:
    """The loop that begins at the line; where none does, the one comprehension there."""
    loop = next((n for n in walk(tree) if isinstance(n, LOOPS) and n.lineno == line), None)
    if loop is not None:
        return loop
    within = [n for n in walk(tree) if isinstance(n, ast.comprehension) and n.target.lineno == line]
    return within[0] if len(within) == 1 else None


def ways_out(tree: ast.AST, line: int) -> list[tuple[int, str]]:
    """(line, text) of each `if …: break` or `if …: return` in the loop at that line.

    Example: `for x in xs: ⏎ if x > 9: ⏎ break` → [(2, 'if x > 9:')]; a `break` of an inner loop does not count.
    """
    return [(guard.line, guard.condition) for guard in way_out_guards(tree, line)]


def shared_item_loop(tree: ast.AST, lines: tuple[int, int]) -> tuple[int, str] | None:
    """(line, text) of the innermost `for` around both lines, if its items decide which of the two is run, and may come
    in another order: those of a range() do not.

    Example: `for kind in kinds: ⏎ if kind == "a": f() ⏎ else: g()`, with the lines of f and g → the `for`.
    """
    loops = [n for n in walk(tree) if isinstance(n, ast.For | ast.AsyncFor) and all(holds(n, x) for x in lines)]
    loop = max(loops, key=lambda n: n.lineno, default=None)
    if loop is None or _is_range(without_wrappers(loop.iter)):
        return None
    # What counts the rounds is the same everywhere.
    counts = {name for guard in guards(tree, max(lines)) if guard.line == loop.lineno for name in guard.rounds}
    items = _simple_names(loop.target) - counts
    if any(items & _simple_names(_test_of(node)) and _separates(node, lines) for node in walk(loop)):
        return loop.lineno, f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
    return None


def _separates(node: ast.AST, lines: tuple[int, int]) -> bool:
    """True if the statement holds one of the lines, but not both in the same block. Example: `if x: f() else: g()`."""
    return any(holds(node, line) for line in lines) and _arm(node, lines[0]) != _arm(node, lines[1])


def item_loop(tree: ast.AST, line: int, function: str) -> tuple[int, str] | None:
    """(line, text) of the innermost loop around the line whose item is called there, comprehensions included.

    Examples: `for part in parts: part.function()`, `for step in steps: step(x)`.
    """
    found: list[tuple[int, str]] = []
    for node in walk(tree):
        loops = [node] if isinstance(node, ast.For | ast.AsyncFor) else getattr(node, "generators", [])
        if not loops or not holds(node, line):
            continue
        called = {_called_item(n, function) for n in walk(node) if isinstance(n, ast.Call) and holds(n, line)}
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


def ends_alike(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line has the same bound on every rank: `while True`, `range(10)`, a literal."""
    loop = _loop_at(tree, line)
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant)
    call = loop.iter if loop is not None else None
    if isinstance(call, ast.Tuple | ast.List):
        return not any(isinstance(each, ast.Starred) for each in call.elts)
    if call is not None and _is_over_model(tree, line, call):
        return True
    fixed = isinstance(call, ast.Call) and dotted(call.func) in ("range", "itertools.count", "count")
    return fixed and isinstance(call, ast.Call) and all(isinstance(a, ast.Constant) for a in call.args)


def _is_range(items: ast.expr) -> bool:
    return isinstance(items, ast.Call) and last_name(items.func) == "range"


def without_wrappers(items: ast.expr) -> ast.expr:
    """What makes the items: `self.plan()` of `enumerate(self.plan())`."""
    while isinstance(items, ast.Call) and dotted(items.func) in names("wraps_items") and items.args:
        items = items.args[0]
    return items


def _is_over_model(tree: ast.AST, line: int, source: ast.expr) -> bool:
    """True for the parts of a model, which are the same on every rank: `model.parameters()`, what an optimizer holds of
    them, and for `group[…]` in a loop over that."""
    source = without_wrappers(source)
    if isinstance(source, ast.Subscript) and isinstance(source.value, ast.Name):
        around = [n for n in walk(tree) if isinstance(n, ast.For) and n.lineno < line and holds(n, line)]
        return any(dotted(n.target) == source.value.id and _is_over_model(tree, n.lineno, n.iter) for n in around)
    part = source.func if isinstance(source, ast.Call) else source
    name = part.attr if isinstance(part, ast.Attribute) else ""
    return name in names("model_part" if isinstance(source, ast.Call) else "optimizer_part")


def counts_to_a_bound(tree: ast.AST, line: int) -> tuple[str, ...] | None:
    """The names in the bound of a loop that only counts: `for step in range(self.steps)`, or `while epoch < epochs:`
    whose body has `epoch += 1` under no condition; None for other loops.

    Nothing but its bound can end such a loop earlier on one rank, unless the body leaves it. Examples: as above →
    ('self.steps',) and ('epochs',); of `range(len(batches))` → None, as that depends on data. What each round makes
    longer counts as well: see ``_grows_to``.
    """
    loop = _loop_at(tree, line)
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "range":
        bound = loop.iter.args
        return _plain_names(bound) if not loop.iter.keywords else None
    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Compare) and len(loop.test.ops) == 1:
        sides = [loop.test.left, loop.test.comparators[0]]
        counted = {dotted(s.target) for s in loop.body if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add)}
        bound = [each for each in sides if dotted(each) not in counted or not dotted(each)]
        bound = bound if len(bound) == 1 else _grows_to(tree, loop, *sides)
        return _plain_names(bound) if bound else None
    return None


def _grows_to(tree: ast.AST, loop: ast.While, length: ast.expr, end: ast.expr) -> list[ast.expr]:
    """By how much ``length`` is to grow, where each round makes it longer and ``end`` is what it began with and a
    bound, as a list of one; [] for others.

    Example: `start = ids.shape[1] ⏎ while ids.shape[1] < start + limit: ⏎ ids = torch.cat([ids, token], 1)` → `limit`;
    so too for `ids = prompt ⏎ while ids.shape[1] < prompt.shape[1] + limit:`.
    """
    if not isinstance(end, ast.BinOp) or not isinstance(end.op, ast.Add):
        return []
    here, as_text = enclosing_function(tree, loop.lineno), ast.dump(length)
    stored = [n for n in walk(here) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    begins = [n for n in walk(here) if isinstance(n, ast.Assign) and ast.dump(n.value) == as_text]
    starts = {dotted(n.targets[0]) for n in begins if n.lineno < loop.lineno and len(n.targets) == 1}
    starts = {name for name in starts if sum(each.id == name for each in stored) == 1}
    grown = _lengthened(loop.body)
    added = [other for start, other in ((end.left, end.right), (end.right, end.left)) if dotted(start) in starts]
    return added[:1] if any(dotted(n) in grown for n in walk(length)) else []


def _lengthened(body: list[ast.stmt]) -> set[str]:
    """What these statements make longer by one thing, under no condition: by `x.append(y)` or `x = cat([x, y])`."""
    found = set()
    for each in body:
        call = each.value if isinstance(each, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call):
            continue
        if isinstance(each, ast.Expr) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            found.add(dotted(call.func.value))
        elif isinstance(each, ast.Assign) and last_name(call.func) in names("joins_tensors") and call.args:
            parts = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else []
            found |= {dotted(part) for part in parts if len(parts) == 2} & set(map(dotted, each.targets))
    return found - {""}


def _plain_names(bound: list[ast.expr]) -> tuple[str, ...] | None:
    calls = any(isinstance(node, ast.Call) for each in bound for node in walk(each))
    return None if calls else tuple(name for each in bound for name in names_in(each))


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


def calls_its_items(tree: ast.AST, line: int) -> bool:
    """True if the `for` at that line calls its items, or hands them to a function: they are parts of a program, as the
    layers of a model are, and no data.

    Examples: `for layer in self.layers: x = layer(x)`, `for i, block in enumerate(blocks): x = checkpoint(block, x)`.
    What a call makes (`for batch in self.batches():`) may be other things each time: → False.
    """
    loop = _loop_at(tree, line)
    if not isinstance(loop, ast.For):
        return False
    source = without_wrappers(loop.iter)
    if isinstance(source, ast.Call | ast.GeneratorExp):
        return False
    items = _simple_names(loop.target)
    calls = list(calls_in(loop.body))
    handed = (c.args[0] for c in calls if c.args and dotted(c.func).rpartition(".")[2] in names("calls_its_argument"))
    return not items.isdisjoint(dotted(each) for each in (*(call.func for call in calls), *handed))


def tries_again(tree: ast.AST, tried: int) -> bool:
    """True if the try at that line leaves the loop around it when its body succeeds: only an exception repeats it.

    Example: `while True: ⏎ try: ⏎ return load() ⏎ except OSError: ⏎ pass`, tried 2 → True.
    """
    for loop in walk(tree):
        for node in walk(loop) if isinstance(loop, LOOPS) else ():
            if isinstance(node, ast.Try) and node.lineno == tried:
                return any(isinstance(block[-1], ast.Return | ast.Break) for block in (node.body, node.orelse) if block)
    return False


def asks_again(tree: ast.AST, line: int) -> bool:
    """True if the innermost loop around the line is a `while` that asks something each time round.

    Example: the sleep in `while not marker.exists(): ⏎ time.sleep(1)`.
    """
    inner = innermost_loop(tree, line)
    if not isinstance(inner, ast.While):
        return False
    tests = [inner.test, *(node.test for node in walk(inner) if isinstance(node, ast.If))]
    return any(isinstance(node, ast.Call) for test in tests for node in walk(test))


def _test_of(node: ast.AST) -> ast.expr | None:
    """What an `if` or a `match` tests."""
    return node.test if isinstance(node, ast.If) else node.subject if isinstance(node, ast.Match) else None


def _simple_names(node: ast.AST | None) -> set[str]:
    """The names in an expression, without attributes. Example: `self.kind == kind` → {'self', 'kind'}."""
    return {n.id for n in walk(node) if isinstance(n, ast.Name)} if node is not None else set()


def _arm(node: ast.AST, line: int) -> int:
    """Which block of the statement holds the line; -1: none."""
    blocks = [case.body for case in node.cases] if isinstance(node, ast.Match) else []
    blocks += [node.body, node.orelse] if isinstance(node, ast.If) else []
    return next((i for i, block in enumerate(blocks) if any(holds(s, line) for s in block)), -1)


def reads_in_pieces(tree: ast.AST, line: int) -> bool:
    """True if the innermost loop around the line goes on until what is read there is complete: what it tests is made of
    what the line's statement sets.

    Example: `while len(parts) < size: ⏎ piece = sock.recv(size - len(parts)) ⏎ parts += piece`, with the line of the
    recv; not `while self.running: ⏎ command = sock.recv(4)`.
    """
    loop = innermost_loop(tree, line)
    if not isinstance(loop, ast.While):
        return False
    sets = [n for n in walk(loop) if isinstance(n, ast.Assign | ast.AugAssign) and n.value is not None]
    read = {name for node in sets if holds(node, line) for name in _targets(node)}
    for node in sorted(sets, key=lambda n: n.lineno):
        if read & _simple_names(node.value):
            read |= _targets(node)
    return bool(read & _simple_names(loop.test))


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name for target in targets for name in _simple_names(target)}


def is_retry_loop(tree: ast.AST, line: int) -> bool:
    """True if the loop at that line repeats only after an exception: its body is a try that leaves the loop."""
    loop = _loop_at(tree, line)
    body = loop.body if isinstance(loop, LOOPS) else []
    return any(isinstance(each, ast.Try) and tries_again(tree, each.lineno) for each in body)
