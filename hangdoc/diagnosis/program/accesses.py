"""What a node of the graph reads and what it gives a value, by name.

A key is a name ('limit'), a dotted one ('self.stale') or what is in a container ('cache[]'). Names that a comprehension
or a lambda binds are none of the function's: theirs end with where they are bound, 'x@12:4'.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hangdoc.diagnosis.program.pieces import children, dotted, walk

FILLING = frozenset(
    (
        *("append", "appendleft", "add", "extend", "extendleft", "insert", "put", "put_nowait", "update", "setdefault"),
        *("reverse", "sort", "rotate"),
    )
)
"""Methods that put something into a container or a queue, or put what it holds in another order: those of `list`,
`collections`, `queue`, `asyncio`."""
TAKING = frozenset(("pop", "popleft", "popitem", "get", "get_nowait", "remove", "discard", "clear"))
"""Methods that take something out of one."""
Bound = Mapping[str, str]
"""Name → key of the names that are bound around an expression by comprehensions and lambdas."""
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True)
class Read:
    """A key that is read. ``called``: it is what is called."""

    key: str
    node: ast.AST
    called: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A key that is given a value: ``value``, or an item of it (``kind`` 'loop'); None where that has no expression.

    ``kind`` is that of ``Definition``, or 'import', 'def' (of functions and classes) and 'deleted'. ``outcome``: the
    way out of the node on which it has been given; '' for all but that of an exception.
    """

    key: str
    node: ast.AST
    kind: str
    value: ast.AST | None = None
    outcome: str = ""


def bound_by(node: ast.Lambda | Comprehension, around: Bound) -> Bound:
    """The names bound inside a comprehension or a lambda, with those bound around it."""
    if isinstance(node, ast.Lambda):
        names = [each.arg for each in parameters(node.args)]
    else:
        targets = (each.target for each in node.generators)
        names = [n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)]
    place = f"@{node.lineno}:{node.col_offset}"
    return {**around, **{name: name + place for name in names}}


def parameters(found: ast.arguments) -> list[ast.arg]:
    """All parameters, in the order in which they are written."""
    some = (*found.posonlyargs, *found.args, found.vararg, *found.kwonlyargs, found.kwarg)
    return [each for each in some if each is not None]


def reads(node: ast.AST, bound: Bound) -> Iterator[Read]:
    """What the expression (or simple statement) reads, in the order of the text; also what a lambda in it would."""
    waiting: list[tuple[ast.AST, Bound]] = [(node, bound)]
    called: set[int] = set()
    while waiting:
        each, around = waiting.pop()
        if isinstance(each, ast.Constant):
            continue
        if isinstance(each, ast.Name):
            if not isinstance(each.ctx, ast.Store):
                yield Read(around.get(each.id, each.id), each, id(each) in called)
            continue
        if isinstance(each, ast.Attribute):
            key = key_of(each, around) or f"?.{each.attr}"
            if not isinstance(each.ctx, ast.Store):
                yield Read(key, each, id(each) in called)
            if isinstance(each.value, ast.Name) and each.value.id in ("self", "cls"):
                continue
        elif isinstance(each, ast.Call):
            called.add(id(each.func))
        elif isinstance(each, ast.Lambda | Comprehension):
            around = bound_by(each, around)
        waiting += [(child, around) for child in children(each)]


def key_of(node: ast.AST, bound: Bound) -> str:
    """The key of a name or of attributes of one; '' of anything else."""
    base, dot, rest = dotted(node).partition(".")
    return f"{bound.get(base, base)}{dot}{rest}"


def evaluated(node: ast.AST | None) -> list[ast.AST]:
    """The parts of a node's syntax that it runs itself: of a compound statement what stands before its body."""
    if node is None or isinstance(node, ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
        return []
    if isinstance(node, ast.If | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [each.context_expr for each in node.items]
    if isinstance(node, ast.withitem):
        return [node.context_expr]
    if isinstance(node, ast.ExceptHandler):
        return [node.type] if node.type else []
    if isinstance(node, ast.match_case):
        return [node.pattern]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list, *node.args.defaults, *(each for each in node.args.kw_defaults if each)]
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    return [node]


def writes(node: ast.AST | None, bound: Bound, outer_names: frozenset[str]) -> list[Write]:
    """What a node with that syntax gives a value. ``outer_names``: those declared `global` or `nonlocal`."""
    found = list(_by_statement(node, bound))
    for part in evaluated(node):
        found += _inside(part, bound)
    if not outer_names:
        return found
    return [Write(w.key, w.node, "global", w.value, w.outcome) if w.key in outer_names else w for w in found]


def _by_statement(node: ast.AST | None, bound: Bound) -> Iterator[Write]:
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _targets(target, node.value, "assign")
        case ast.AugAssign():
            yield from _targets(node.target, node, "assign")
        case ast.AnnAssign():
            if node.value is not None:
                yield from _targets(node.target, node.value, "assign")
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield from _targets(node.target, node.iter, "loop", "round", bound)
        case ast.With() | ast.AsyncWith():
            for item in node.items:
                if item.optional_vars is not None:
                    yield from _targets(item.optional_vars, item.context_expr, "assign")
        case ast.ExceptHandler():
            if node.name:
                yield Write(node.name, node, "assign", None, "raised")
        case ast.match_case():
            names = (getattr(n, "name", None) or getattr(n, "rest", None) for n in walk(node.pattern))
            yield from (Write(name, node, "assign") for name in names if name)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield Write(node.name, node, "def")
        case ast.Import() | ast.ImportFrom():
            yield from (Write(each.asname or each.name.partition(".")[0], node, "import") for each in node.names)
        case ast.Delete():
            for target in node.targets:
                yield from _targets(target, None, "deleted")
        case _:
            pass


def _targets(
    target: ast.AST, value: ast.AST | None, kind: str, outcome: str = "", bound: Bound = MappingProxyType({})
) -> list[Write]:
    """The keys of a target. Example: `a, self.b[0] = x, y` → 'a' from `x`, 'self.b[]' from `y`."""
    if isinstance(target, ast.Tuple | ast.List):
        values: list[ast.AST | None] = [value] * len(target.elts)
        if kind == "assign" and isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = list(value.elts)
        pairs = zip(target.elts, values, strict=True)
        return [write for each, one in pairs for write in _targets(each, one, kind, outcome, bound)]
    if isinstance(target, ast.Starred):
        return _targets(target.value, value, kind, outcome, bound)
    if isinstance(target, ast.Name):
        return [Write(bound.get(target.id, target.id), target, kind, value, outcome)]
    if isinstance(target, ast.Attribute):
        return [Write(dotted(target) or f"?.{target.attr}", target, kind, value, outcome)]
    if isinstance(target, ast.Subscript):
        name = dotted(target.value)
        filled = "taken" if kind == "deleted" else "filled"
        return [Write(f"{name}[]", target, filled, value, outcome)] if name else []
    return []


def _inside(part: ast.AST, bound: Bound) -> Iterator[Write]:
    """What an expression gives a value: `n := f()`, `jobs.append(x)`, `jobs.pop()`."""
    for node in walk(part):
        if isinstance(node, ast.NamedExpr):
            yield Write(node.target.id, node, "assign", node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            kind = "filled" if node.func.attr in FILLING else "taken" if _takes(node, node.func.attr) else ""
            key = key_of(node.func.value, bound) if kind else ""
            if key:
                yield Write(f"{key}[]", node, kind, node)


def _takes(call: ast.Call, method: str) -> bool:
    """True for `queue.get()` and `queue.get(True)`, not for `cache.get(key)`: a look-up leaves what it finds."""
    if method == "get" and call.args:
        return isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, bool)
    return method in TAKING
