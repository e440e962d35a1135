"""One step back from an expression: what set its value, or changed what it holds.

``settings`` gives for a name the statements that set it, or the arguments of the calls where it is a parameter; for an
attribute those in all of the program's classes, outside of `__init__` first; for a call what the function returns.
Example: of `kept` in

    1  def step(self, docs):
    2      kept, dropped = self.split(docs)
    3      if dropped:

the one setting is line 2, with the value `self.split(docs)` and part 1 for `dropped`; and of that value, the settings
are the second elements of what split() returns. A change without a value is `self.bad += 1`, `rows.append(row)`, or
what a loop gives.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import children, dotted, enclosing_function, holds, last_name, text_of, walk
from hangdoc.model.asked import answers_to, can_be_method

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands: in ``function`` of ``tree``, a captured piece of the file."""

    file: str
    tree: ast.AST
    function: ast.AST


@dataclass(frozen=True, slots=True)
class Setting:
    """``node`` sets the expression, or changes what it holds.

    ``part``: which element of the value it is set to, -1 for the whole. ``value`` is None for a sum, and for what only
    changes it; of a loop's item, it is what the loop goes over.
    """

    at: Place
    node: ast.stmt | ast.expr
    target: ast.expr | None
    value: ast.expr | None = None
    part: int = -1
    how: str = "set"
    """'set', 'counted', 'filled', 'ordered', 'item', 'given' (an argument) or 'returned'."""

    @property
    def line(self) -> int:
        """The line of what sets it."""
        return self.node.lineno

    @property
    def text(self) -> str:
        """What it says of the value: `stale = age > limit`, `full=score > best`, `return kind == other`."""
        if isinstance(self.target, ast.Name) and self.how == "given":
            return f"{self.target.id}={text_of(self.value)}"
        whole = f"yield {text_of(self.value)}" if isinstance(self.node, ast.Yield) else text_of(self.node)
        return shortened(whole, self.node)


def shortened(text: str, node: ast.AST) -> str:
    """The text; where it is too long to be told, the first test in it: `if age > limit` of a comprehension."""
    return text if not text.endswith("…") else _first_test(node) or text


def _first_test(node: ast.AST) -> str:
    for each in walk(node):
        if isinstance(each, ast.comprehension) and each.ifs:
            return f"if {text_of(each.ifs[0])}"
        if isinstance(each, ast.IfExp):
            return f"if {text_of(each.test)}"
    return ""


_ORDERING = frozenset(names("puts_in_order"))


def place_of(sources: Sources, file: str, line: int) -> Place | None:
    """The place of the line; None where its source was not captured."""
    tree = sources.function(file, line)
    return Place(file, tree, enclosing_function(tree, line)) if tree is not None else None


def settings(sources: Sources, at: Place, expression: ast.expr, part: int = -1) -> list[Setting]:
    """What set the value of the name, attribute or call, one step back; [] for other expressions, and where that is not
    the program's. ``part``: of which element of it.

    Example: `self.stale` with `self.stale = False` in `__init__` and `self.stale = age > 3` in look() → the latter.
    """
    if isinstance(expression, ast.Name):
        return _of_name(sources, at, expression.id)
    if isinstance(expression, ast.Attribute):
        return _of_property(sources, at, expression) or _of_attribute(sources, at, expression)
    if isinstance(expression, ast.Call):
        function = function_called(sources, at, expression) or _iterating(sources, expression)
        return list(returned(*function, part)) if function is not None else []
    return []


def function_called(
    sources: Sources, at: Place, call: ast.Call
) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """(file, the program's function that the call runs); None where it is none, or one of several."""
    found = [
        (file, node)
        for file, node in sources.user_definitions(last_name(call.func))
        if answers_to(node, called=True) and node is not at.function and can_be_method(node, call.func)
    ]
    return _own_of(sources, at, call.func, found)


def _iterating(sources: Sources, made: ast.Call) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """What gives the truth, else the items, of an object of the program's that the call makes."""
    methods = [(file, each) for file, _, owner in sources.user_classes(last_name(made.func)) for each in owner.body]
    found = [
        (file, m) for file, m in methods if isinstance(m, _FUNCTIONS) and m.name in ("__bool__", "__iter__", "__next__")
    ]
    found = [each for each in found if not _returns_self(each[1])]
    found = [each for each in found if each[1].name == "__bool__"] or found
    return found[0] if len(found) == 1 else None


def _returns_self(function: ast.AST) -> bool:
    given = [n.value for n in _own_nodes(function) if isinstance(n, ast.Return | ast.Yield) and n.value is not None]
    return all(dotted(each) == "self" for each in given)


def _own_of(
    sources: Sources, at: Place, called: ast.expr, found: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]
) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The only one of them; of several, that of the class around, where it is called on `self`, else the one that
    returns more than constants: others only say that a class has nothing of the kind."""
    if len(found) > 1 and isinstance(called, ast.Attribute) and dotted(called.value) == "self":
        owner = _class_around(sources, at)
        found = [each for each in found if owner is not None and each[0] == at.file and holds(owner, each[1].lineno)]
    if len(found) > 1:
        found = [each for each in found if not _returns_constants(each[1])]
    return found[0] if len(found) == 1 else None


def _returns_constants(function: ast.AST) -> bool:
    given = [n.value for n in _own_nodes(function) if isinstance(n, ast.Return | ast.Yield)]
    return all(each is None or isinstance(each, ast.Constant) for each in given)


def returned(file: str, function: ast.AST, part: int = -1) -> Iterator[Setting]:
    """What the function returns or yields, or that element of it."""
    for node in _own_nodes(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            value, rest = _element(node.value, part)
            yield Setting(Place(file, function, function), node, None, value, rest, "returned")


def _element(value: ast.expr, part: int) -> tuple[ast.expr, int]:
    """That element of what is written out as a tuple; else the value, of which it remains to be taken."""
    if part >= 0 and isinstance(value, ast.Tuple | ast.List) and part < len(value.elts):
        return value.elts[part], -1
    return value, part


def _of_name(sources: Sources, at: Place, name: str) -> list[Setting]:
    given = name in _parameters(at.function)
    changes = [c for c in _changes(at.tree).get(name, ()) if isinstance(c.target, ast.Name)]
    found = [replace(c, at=at) for c in changes if c.at.function is at.function or _reaches_out(c.at.function, name)]
    if given:
        found += _arguments(sources, at, name)
    if found or given:
        return found
    outer: dict[tuple[int, int], Setting] = {}
    for _, tree in sources.trees(at.file):
        for each in _changes(tree).get(name, ()):
            around = each.at.function
            closes = isinstance(around, ast.Module) or holds(around, _line_of(at.function))
            if isinstance(each.target, ast.Name) and (closes or _reaches_out(around, name)):
                outer.setdefault((each.line, each.node.col_offset), replace(each, at=Place(at.file, tree, around)))
    return list(outer.values())


def _arguments(sources: Sources, at: Place, name: str) -> Iterator[Setting]:
    """What the calls of the function give for its parameter."""
    function = at.function
    if not isinstance(function, _FUNCTIONS):
        return
    owner = _class_around(sources, at)
    called = owner.name if function.name == "__init__" and owner is not None else function.name
    calls = list(sources.user_calls(called))
    if owner is not None and called == owner.name:  # `return cls(enabled=…)` of its own methods
        calls += [c for c in sources.user_calls("cls") if c.file == at.file and holds(owner, c.call.lineno)]
    if len(sources.user_definitions(called)) > 1 or len(calls) > LISTED:
        return
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    bound = parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters
    for each in calls:
        value = argument_of(each.call, bound, name)
        if value is not None:
            here = Place(each.file, each.tree, each.function)
            yield Setting(here, value, ast.Name(name), value, how="given")


def argument_of(call: ast.Call, parameters: list[str], name: str) -> ast.expr | None:
    """What the call gives for the parameter of that name."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    place = parameters.index(name) if name in parameters else len(call.args)
    return call.args[place] if place < len(call.args) else None


def _of_property(sources: Sources, at: Place, expression: ast.Attribute) -> list[Setting]:
    found = [
        (file, node)
        for file, node in sources.user_definitions(expression.attr)
        if answers_to(node, called=False) and node is not at.function
    ]
    function = _own_of(sources, at, expression, found)
    return list(returned(*function, -1)) if function is not None else []


def _of_attribute(sources: Sources, at: Place, expression: ast.Attribute) -> list[Setting]:
    """What sets an attribute of that name; of `self` that of its own class, and from outside of any class's own."""
    owner = _class_around(sources, at) if dotted(expression.value) == "self" else None
    found: dict[tuple[str, int, int], Setting] = {}
    for file, tree in sources.user_trees():
        for each in _changes(tree).get(expression.attr, ()):
            target = each.target
            if not isinstance(target, ast.Attribute):
                continue
            own = dotted(target.value) == "self"
            if owner is None or not own or (file == at.file and holds(owner, each.line)):
                place = file, each.line, each.node.col_offset
                found.setdefault(place, replace(each, at=Place(file, tree, each.at.function)))
    later = [each for each in found.values() if getattr(each.at.function, "name", "") != "__init__"]
    given = list(_of_fields(sources, expression.attr))
    anew = [each for each in later if each.how not in ("filled", "counted")]
    return [*later, *given] if anew or given else list(found.values())


def _of_fields(sources: Sources, name: str) -> Iterator[Setting]:
    """What the calls of a class give for its field of that name: `Decision(skip=norm > limit)`."""
    for owner in _classes_with_field(sources, name):
        fields = [f.target.id for f in owner.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
        calls = sources.user_calls(owner.name)
        for each in calls if len(calls) <= LISTED else ():
            value = argument_of(each.call, fields, name)
            if value is not None:
                here = Place(each.file, each.tree, each.function)
                yield Setting(here, value, ast.Name(name), value, how="given")


def _classes_with_field(sources: Sources, name: str) -> list[ast.ClassDef]:
    found: dict[tuple[str, int], ast.ClassDef] = {}
    for file, tree in sources.user_trees():
        for owner in _fields(tree).get(name, ()):
            found.setdefault((file, owner.lineno), owner)
    return list(found.values())


def _class_around(sources: Sources, at: Place) -> ast.ClassDef | None:
    """The class that the function is a method of, as far as the file was captured."""
    line = _line_of(at.function)
    around = [node for _, tree in sources.trees(at.file) for node in _classes(tree) if holds(node, line)]
    return max(around, key=lambda node: node.lineno, default=None)


def _line_of(function: ast.AST) -> int:
    """The line of the function; of a captured piece around one, its first statement's."""
    body = getattr(function, "body", None)
    return getattr(function, "lineno", 0) or (body[0].lineno if isinstance(body, list) and body else 0)


def _parameters(function: ast.AST) -> set[str]:
    given = getattr(function, "args", None)
    return {each.arg for each in walk(given) if isinstance(each, ast.arg)} if isinstance(given, ast.AST) else set()


def _reaches_out(function: ast.AST, name: str) -> bool:
    """True if the function declares the name as one of a function around it, or of the module."""
    return any(isinstance(n, ast.Nonlocal | ast.Global) and name in n.names for n in _own_nodes(function))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of the function without those of functions in it."""
    waiting = deque(children(function))
    while waiting:
        node = waiting.popleft()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            waiting += children(node)


@lru_cache(maxsize=4096)
def _classes(tree: ast.AST) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in walk(tree) if isinstance(node, ast.ClassDef))


@lru_cache(maxsize=4096)
def _fields(tree: ast.AST) -> dict[str, list[ast.ClassDef]]:
    """Name → the classes of the tree that declare a field of that name in their body."""
    found: dict[str, list[ast.ClassDef]] = {}
    for owner in _classes(tree):
        for each in owner.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found.setdefault(each.target.id, []).append(owner)
    return found


# Nobody changes a tree, and many names are asked for.
@lru_cache(maxsize=4096)
def _changes(tree: ast.AST) -> dict[str, list[Setting]]:
    """Last name → what sets a name or an attribute of that name in the tree, or changes what it holds, by line."""
    found: dict[str, list[Setting]] = {}
    changing = names("changes_content")
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        node, function = waiting.pop()
        inside = node if isinstance(node, _FUNCTIONS) else function
        for each in _made_by(node, Place("", tree, inside), changing):
            if each.target is not None and last_name(each.target):
                found.setdefault(last_name(each.target), []).append(each)
        waiting += ((child, inside) for child in children(node))
    return {name: sorted(each, key=lambda s: (s.line, s.node.col_offset)) for name, each in found.items()}


# One branch for each kind of statement.
def _made_by(node: ast.AST, at: Place, changing: tuple[str, ...]) -> Iterator[Setting]:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _to(target, node, node.value, at)
    elif isinstance(node, ast.AugAssign):
        grown = isinstance(node.value, ast.List | ast.Tuple | ast.ListComp)
        yield Setting(at, node, node.target, how="filled" if grown else "counted")
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from _items(node, at)
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if item.optional_vars is not None:
                yield Setting(at, node, item.optional_vars, item.context_expr)
    elif isinstance(node, ast.Delete):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield Setting(at, node, target.value, how="filled")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changing:
        yield Setting(at, node, node.func.value, how="filled")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ORDERING:
        yield Setting(at, node, node.func.value, how="ordered")


def _items(node: ast.For | ast.AsyncFor, at: Place) -> Iterator[Setting]:
    """The names of a `for` by what it goes over: of `for i, (a, b) in enumerate(pairs)`, `b` is part 1 of `pairs`."""
    target, over = node.target, node.iter
    counted = isinstance(over, ast.Call) and last_name(over.func) == "enumerate" and over.args
    if isinstance(over, ast.Call) and counted and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target, over = target.elts[1], over.args[0]
    if isinstance(over, ast.Call) and last_name(over.func) == "range":
        return  # its items only count
    for i, each in enumerate(target.elts if isinstance(target, ast.Tuple | ast.List) else [target]):
        part = i if isinstance(target, ast.Tuple | ast.List) else -1
        for name in _parts(each):
            yield Setting(at, node, name, over, part, how="item")


def _to(target: ast.expr, node: ast.stmt | ast.expr, value: ast.expr, at: Place) -> Iterator[Setting]:
    if isinstance(target, ast.Subscript):
        yield Setting(at, node, target.value, how="filled")
    elif isinstance(target, ast.Tuple | ast.List):
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        for i, part in enumerate(target.elts):
            one, rest = (value, -1) if starred else _element(value, i)
            yield from _to_part(part, node, one, rest, at)
    else:
        yield Setting(at, node, target, value)


def _to_part(part: ast.expr, node: ast.stmt | ast.expr, value: ast.expr, rest: int, at: Place) -> Iterator[Setting]:
    for each in _parts(part):
        yield Setting(at, node, each, value, rest)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target
