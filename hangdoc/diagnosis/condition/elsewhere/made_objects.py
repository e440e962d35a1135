"""Where the object was made whose method only one side is in: a callback, a hook or a handler of some ranks only.

Such a method is called from a library's loop, or from a list, without a condition around the call: the condition is
around the line that made the object, or around the call of the function that did. Example:

    if rank == 0:
        callbacks.append(Saver(path))    # rank 0 waits in Saver.on_step_end(), below fit()
    fit(callbacks)

A class may be chosen before it is called: `kind = Saver if rank == 0 else Quiet ⏎ kind(path)`. Where no line calls it
by its name, the conditions around every line that names it are these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, walk
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class Made:
    """A line of the user's that makes an object of the class ``name``. ``frame``: that line, in its function;
    ``guards``: the conditions around it, outermost first; ``level``: the place of the object's method on the way, 0 for
    the outermost frame."""

    name: str
    frame: Frame
    guards: tuple[Guard, ...]
    level: int


def made_on_the_way(sources: Sources, way: Stack, other: Stack, at: int) -> list[Made]:
    """The lines that make the objects whose methods are on ``way`` alone, from its frame ``at`` on.

    Both are outermost first. Nothing is said of a class that the other side is in too, or that some line makes under
    no condition. Example: as above → line 2, under `if rank == 0:`.
    """
    theirs = {class_of(frame) or _class_around(sources, frame) for frame in other}
    found: list[Made] = []
    for level, frame in enumerate(way[at:], at):
        name = class_of(frame) or _class_around(sources, frame)
        if not name or name in theirs:
            continue
        theirs.add(name)
        made = [Made(name, where, around, level) for where, around in _makers(sources, name)]
        found += made if all(each.guards for each in made) else []
    return found


def class_of(frame: Frame) -> str:
    """The class of the method that the frame is in: 'Saver' of 'Saver.on_step_end'; '' for what is no method."""
    owner = frame.function.rpartition(".")[0].rpartition(".")[2]
    return "" if owner.startswith("<") else owner


def _class_around(sources: Sources, frame: Frame) -> str:
    """The class of the user's method that holds the frame's line, where its name does not say it: calls are recorded
    with plain names."""
    for file, method in sources.user_definitions(frame.function):
        if file != frame.file or not holds(method, frame.line):
            continue
        owners = (n for _, t in sources.trees(file) for n in walk(t) if isinstance(n, ast.ClassDef))
        return next((owner.name for owner in owners if any(each.lineno == method.lineno for each in owner.body)), "")
    return ""


def _makers(
    sources: Sources, name: str, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[Frame, tuple[Guard, ...]]]:
    """(the line, the conditions around it) of each call of the class in the user's code; of a line under none, what
    calls its function.

    Example: `def attach(engine): Average().attach(engine)`, and `if rank == 0: attach(trainer)` → that `if`.
    """
    for frame, around in _calls(sources, name):
        function = frame.function
        outer = []
        if not around and not function.startswith("<") and function not in seen and len(seen) < LISTED:
            outer = list(_makers(sources, function, seen | {function, name}))
        yield from outer or [(frame, around)]


def _calls(sources: Sources, name: str) -> Iterator[tuple[Frame, tuple[Guard, ...]]]:
    """(the line, the conditions around it) of each call of that name in the user's code, but for those of the function
    of that name itself."""
    seen: set[tuple[str, int]] = set()
    for file, tree in sources.user_trees():
        for node in walk(tree):
            if not isinstance(node, ast.Call) or last_name(node.func) != name:
                continue
            if (file, node.lineno) in seen:
                continue
            seen.add((file, node.lineno))
            function = getattr(enclosing_function(tree, node.lineno), "name", "<module>")
            if function == name:
                continue
            yield Frame(file, node.lineno, function), _conditions(tree, node.lineno, name)


def _conditions(tree: ast.AST, line: int, name: str) -> tuple[Guard, ...]:
    """The conditions around that name in the line; not `if __name__ == "__main__":`, which every rank passes."""
    around = guards(tree, line, frozenset({name}))
    return tuple(g for g in around if g.kind in CONDITIONS and g.names != ("__name__",))
