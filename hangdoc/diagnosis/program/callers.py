"""Who calls a function: calls of its name, of objects of its class, and places where it is handed on to be called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.program.accesses import evaluated, reads
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.lookup import Lookup
from hangdoc.diagnosis.program.pieces import dotted, last_name

_BY_CALL = ("__call__", "forward")
"""Methods that a call of the object runs; `forward` of modules of torch, docs.pytorch.org, torch.nn.Module."""
_BY_MAKING = ("__init__", "__new__", "__post_init__", "__enter__", "__exit__")
"""Methods that run where the object is made, or as a rule there."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a function is called, or, without ``call``, handed on to whoever calls it."""

    function: Body
    node: int
    call: ast.Call | None


def callers(lookup: Lookup, target: Body) -> Iterator[Site]:
    """The places that may call the target, in the order of the files.

    Example: of `step`: `self.step(x)`, `Thread(target=step)`.
    """
    name = target.short_name
    if target.outer is None:
        return
    if target.is_class:  # its body runs where it stands
        yield from (
            Site(f, n, None) for f, n in lookup.index.places(name) if f is target.outer and _defines(f, n, name)
        )
    elif target.owner is target.outer and name in _BY_MAKING:
        assert target.outer is not None
        yield from _sites(lookup, target, target.outer.short_name, only_calls=True)
    elif target.owner is target.outer and (name in _BY_CALL or name.startswith("__")):
        for word in _objects(lookup, target):
            yield from _sites(lookup, target, word, only_calls=name in _BY_CALL)
    else:
        yield from _sites(lookup, target, name, only_calls=False)


def _sites(lookup: Lookup, target: Body, word: str, *, only_calls: bool) -> Iterator[Site]:
    """Where the word is called; else, unless ``only_calls``, where it is read."""
    for function, node in lookup.index.places(word):
        graph = function.graph
        for part in evaluated(graph.syntax[node]):
            found = {id(each.func): each for each in function.calls(part)}
            for read in reads(part, graph.bound.get(node, {})):
                if last_name(read.node) == word and _may_mean(lookup, function, read.node, target):
                    call = found.get(id(read.node))
                    if call is not None or not only_calls:
                        yield Site(function, node, call)


def _may_mean(lookup: Lookup, function: Body, named: ast.AST, target: Body) -> bool:
    """False for what is known to be of another class, or to be a function where a method is asked for."""
    if target.short_name in (*_BY_MAKING, *_BY_CALL) or target.short_name.startswith("__"):
        return True
    if isinstance(named, ast.Name):
        return target.owner is not target.outer or target.owner is None
    if target.owner is None or target.owner is not target.outer:
        return dotted(named).partition(".")[0] not in ("self", "cls")
    if isinstance(named, ast.Attribute) and dotted(named.value) in ("self", "cls") and function.owner is not None:
        return target.owner in lookup.index.family(function.owner)
    return True


def _objects(lookup: Lookup, target: Body) -> list[str]:
    """The last names of what objects of the target's class are kept in: `self.model = Net()` → 'model'."""
    assert target.outer is not None
    found: dict[str, None] = {}
    for each in lookup.index.family(target.outer):
        for function, node in lookup.index.places(each.short_name):
            for write in function.reaching.writes[node]:
                if isinstance(write.value, ast.Call) and last_name(write.value.func) == each.short_name:
                    found[write.key.removesuffix("[]").rpartition(".")[2]] = None
    return list(found)


def _defines(function: Body, node: int, name: str) -> bool:
    return any(write.kind == "def" and write.key == name for write in function.reaching.writes[node])
