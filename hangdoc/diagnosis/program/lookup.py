"""What a name stands for where it is read: the writes that may have set it, in this function or elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST, LISTED
from hangdoc.diagnosis.program.accesses import Write
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.index import Index
from hangdoc.diagnosis.program.pieces import dotted, last_name

Place = tuple[Body, int]
"""A function and a node of it."""
Set = tuple[Body, int, Write]
"""Where something is set."""


class Lookup:
    """Of one program: names, attributes, objects' classes, and which functions a call may mean."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._classes: dict[tuple[Body, int, str], list[Body]] = {}
        self._attributes: dict[tuple[str, Body | None], list[Set]] = {}

    def writes(self, function: Body, node: int, key: str, read: ast.AST) -> list[Set]:
        """The writes of the key, and of what is in it, that may reach the node, those of the function itself first."""
        reaching = function.reaching
        base, _, rest = key.partition(".")
        is_local = key in reaching.local_names or f"{key}[]" in reaching.local_names
        found: list[Set] = []
        if is_local:
            here = reaching.of(key, node)
            found = [(function, at, write) for at, write in (*here.writes, *here.contents)]
            if here.writes and not here.from_outside:
                return self._through_imports(found)
        if not rest:
            if key not in reaching.local_names or function.outer is None:
                found += self._around(function, key)
            return self._through_imports(found)
        if base != "?" and "." not in rest:
            modules = self._imported(function, node, base)
            if modules is not None:
                return [each for file, name in modules if not name for each in self._of_module(file, rest)]
        return found + [each for each in self._attribute(function, node, read) if each not in found]

    def _around(self, function: Body, name: str) -> list[Set]:
        """Of a name that is not the function's own: that of a function around it, or of the module."""
        outer = function.outer
        while outer is not None and outer.outer is not None:
            if not outer.is_class and name in outer.reaching.local_names:
                return _all(outer, name)
            outer = outer.outer
        return self._of_module(function.file, name)

    def _of_module(self, file: str, name: str) -> list[Set]:
        """All writes of a module's name: in its body, and in functions that declare it `global` or fill it."""
        found = [each for module in self.index.modules(file) for each in _all(module, name)]
        elsewhere = (each for each in self.index.writes(name) if each[0].file == file and each[0].outer is not None)
        return found + [
            (function, node, write)
            for function, node, write in elsewhere
            if write.kind == "global" or (write.key == f"{name}[]" and name not in function.reaching.local_names)
        ]

    def _through_imports(self, found: list[Set]) -> list[Set]:
        """The same, where an import has set the name with what has set it in the other module."""
        result: list[Set] = []
        for function, node, write in found:
            if write.kind != "import":
                result.append((function, node, write))
                continue
            for file, name in self.index.imported(write.node, write.key):
                result += self._of_module(file, name) if name and file != function.file else []
        return result

    def _imported(self, function: Body, node: int, name: str) -> list[tuple[str, str]] | None:
        """The modules that the name may stand for: (file, ''); None of a name that no import has set."""
        reaching = function.reaching
        if name in reaching.local_names:
            found = [write for _, write in reaching.of(name, node).writes]
        else:
            found = [write for module in self.index.modules(function.file) for _, _, write in _all(module, name)]
        if not any(write.kind == "import" for write in found):
            return None
        return [each for write in found for each in self.index.imported(write.node, name)]

    def _attribute(self, function: Body, node: int, read: ast.AST) -> list[Set]:
        """All writes of the attribute, of objects of the same class as far as that is known."""
        if not isinstance(read, ast.Attribute):
            return []
        owners = self.classes(function, node, read.value)
        owner = owners[0] if owners else None
        key = read.attr, owner
        if key not in self._attributes:
            self._attributes[key] = list(self._attribute_writes(read.attr, owner))
        return self._attributes[key]

    def _attribute_writes(self, name: str, owner: Body | None) -> Iterator[Set]:
        family = self.index.family(owner) if owner is not None else []
        for function, node, write in self.index.writes(name):
            base, dot, _ = write.key.removesuffix("[]").rpartition(".")
            writer = function if function.is_class and not dot else function.owner if base in ("self", "cls") else None
            if (dot or writer) and (owner is None or writer is None or writer in family):
                yield function, node, write
        for function, node in self.index.places(name):  # the fields of a dataclass
            for call in function.calls_at(node):
                made = self.index.classes_named(last_name(call.func))
                if made and (owner is None or any(each in family for each in made)):
                    given = (each for each in call.keywords if each.arg == name)
                    yield from (
                        (function, node, Write(f"{made[0].short_name}.{name}", k, "assign", k.value)) for k in given
                    )

    def classes(self, function: Body, node: int, read: ast.AST) -> list[Body]:
        """The classes of which the expression may be an object, as far as a constructor or an annotation tells."""
        if isinstance(read, ast.Call):
            return self.index.classes_named(last_name(read.func))
        name = dotted(read)
        if name in ("self", "cls") and function.owner is not None:
            return [function.owner]
        if name.count(".") > DEEPEST:
            return []  # each attribute would ask for the class of the one before
        key = function, node, name
        if name and key not in self._classes:
            self._classes[key] = []  # for whoever asks for it on the way: `node = node.next`
            self._classes[key] = list(dict.fromkeys(self._made(function, node, name, read)))
        return self._classes.get(key, [])

    def _made(self, function: Body, node: int, name: str, read: ast.AST) -> Iterator[Body]:
        for where, at, write in self.writes(function, node, name, read):
            if write.kind == "argument" and isinstance(write.node, ast.arg) and write.node.annotation is not None:
                annotation = write.node.annotation
                told = annotation.value if isinstance(annotation, ast.Constant) else last_name(annotation)
                yield from self.index.classes_named(str(told))
            elif write.kind == "assign" and write.value is not None and not write.key.endswith("[]"):
                yield from self.classes(where, at, write.value)

    def functions(self, function: Body, node: int, named: ast.AST, depth: int = DEEPEST) -> list[Body]:
        """The functions (and classes' bodies) that the expression may stand for: a name, an attribute, `partial(f)`."""
        if depth == 0:
            return []
        if isinstance(named, ast.Call) and last_name(named.func) in ("partial", "partialmethod") and named.args:
            return self.functions(function, node, named.args[0], depth - 1)
        if isinstance(named, ast.Attribute):
            found = self._methods(function, node, named)
            if found:
                return found
        name = dotted(named)
        if not name:
            return []
        result: dict[Body, None] = {}
        for where, at, write in self.writes(function, node, name, named):
            if write.kind == "def":
                body = self.index.at(where.file, write.node.body[0].lineno)  # type: ignore[attr-defined]
                result.update({body: None} if body is not None else {})
            elif write.kind == "assign" and write.value is not None and write.value is not named:
                result.update(dict.fromkeys(self.functions(where, at, write.value, depth - 1)))
        return list(result)

    def _methods(self, function: Body, node: int, named: ast.Attribute) -> list[Body]:
        base = named.value
        if isinstance(base, ast.Call) and last_name(base.func) == "super" and function.owner is not None:
            inherited = [each for each in self.index.family(function.owner) if each is not function.owner]
            return [each for each in self.index.functions_named(named.attr) if each.outer in inherited]
        owners = self.classes(function, node, base)
        if owners:
            return [each for owner in owners for each in self.index.methods(owner, named.attr)]
        if dotted(base) and self._imported(function, node, dotted(base).partition(".")[0]) is not None:
            return []
        found = [each for each in self.index.functions_named(named.attr) if each.owner is not None]
        return found if len(found) <= LISTED else []

    def called(self, function: Body, node: int, call: ast.Call) -> list[Body]:
        """The functions that the call may run: also `__call__` or `forward` of an object, `__init__` of a class."""
        found = self.functions(function, node, call.func)
        if not found:
            owners = self.classes(function, node, call.func)
            return [m for owner in owners for name in ("__call__", "forward") for m in self.index.methods(owner, name)]
        made = [m for each in found if each.is_class for m in self.index.methods(each, "__init__") if m.outer is each]
        return [each for each in found if not each.is_class] + made


def argument(target: Body, name: str, call: ast.Call) -> ast.AST | None:
    """What the call gives the parameter, or its default; None where that is not known, as through `*args`."""
    node = target.definition
    if node is None:
        return None
    given = next((each.value for each in call.keywords if each.arg == name), None)
    if given is not None:
        return given
    positional = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    is_method = target.outer is not None and target.outer.is_class and "staticmethod" not in target.decorators
    skipped = 1 if is_method and not (isinstance(call.func, ast.Name) and target.short_name != "__init__") else 0
    if name in positional:
        place = positional.index(name) - skipped
        ahead = call.args[: place + 1]
        if any(isinstance(each, ast.Starred) for each in ahead):
            return next(each for each in ahead if isinstance(each, ast.Starred))
        if 0 <= place < len(call.args):
            return call.args[place]
    if any(each.arg is None for each in call.keywords):
        return next(each.value for each in call.keywords if each.arg is None)
    return _default(node.args, name)


def _default(found: ast.arguments, name: str) -> ast.AST | None:
    positional = [*found.posonlyargs, *found.args]
    pairs = [*zip(reversed(positional), reversed(found.defaults), strict=False)]
    pairs += [(each, value) for each, value in zip(found.kwonlyargs, found.kw_defaults, strict=True) if value]
    return next((value for each, value in pairs if each.arg == name), None)


def _all(function: Body, name: str) -> list[Set]:
    """All writes of the name, and of what is in it, in the function."""
    found = function.reaching.by_key
    return [(function, *each) for key in (name, f"{name}[]") for each in found.get(key, ())]
