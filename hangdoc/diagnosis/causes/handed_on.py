"""Under which conditions a function that the program hands on, as a callback, comes to be called at all.

Example: `complete.set()` stands in arrived(), which `self.uploader.upload(body, arrived)` hands on, and of

    def upload(self, body, arrived):
        if digest_of(body) in self.known:
            return
        self.pool.submit(self.send, body).add_done_callback(arrived)

→ `if digest_of(body) in self.known:`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST, NAMED
from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import function_name, last_name, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame


def handed_on_under(sources: Sources, at: Frame) -> list[Condition]:
    """The conditions, and early ways out, before the lines that hand the function around ``at`` on; [] where the
    program calls it by its name, or where there are too many."""
    if not at.function or sources.user_calls(at.function):
        return []
    found = list(dict.fromkeys(_around(sources, at.function, "", DEEPEST)))
    return found if len(found) <= NAMED else []


def _around(sources: Sources, name: str, within: str, deep: int) -> Iterator[Condition]:
    """Of the uses of ``name`` as an argument in the function ``within``, or anywhere."""
    for file, tree in sources.user_trees():
        for call in (node for node in walk(tree) if isinstance(node, ast.Call)):
            words = [None] * len(call.args) + [word.arg for word in call.keywords]
            given = [*call.args, *(word.value for word in call.keywords)]
            for number, (word, value) in enumerate(zip(words, given, strict=True)):
                if not isinstance(value, ast.Name | ast.Attribute) or last_name(value) != name:
                    continue
                called = sources.user_definitions(last_name(call.func))
                if within and _function_of(sources, file, call.lineno) != within:
                    continue
                around = guards(tree, call.lineno) if within else []
                yield from (cited(each, file) for each in around if each.kind in (*CONDITIONS, "return"))
                for _, body in called if deep and len(called) == 1 else ():
                    parameter = word or _parameter(body, number, isinstance(call.func, ast.Attribute))
                    yield from _around(sources, parameter, body.name, deep - 1) if parameter else ()


def _parameter(body: ast.FunctionDef | ast.AsyncFunctionDef, number: int, method: bool) -> str:
    names = [each.arg for each in (*body.args.posonlyargs, *body.args.args)]
    names = names[1:] if method and names[:1] == ["self"] else names
    return names[number] if number < len(names) else ""


def _function_of(sources: Sources, file: str, line: int) -> str:
    tree = sources.function(file, line)
    return function_name(tree, line) if tree is not None else ""


def is_called_back(sources: Sources, at: Frame) -> bool:
    """True if the program calls the function around the line only from lambdas: a loop around these makes them, and its
    end says nothing of when they run."""
    calls = sources.user_calls(at.function) if at.function else []
    lambdas = [n for each in calls for n in walk(each.tree) if isinstance(n, ast.Lambda)]
    return bool(calls) and all(any(each.call in walk(n) for n in lambdas) for each in calls)
