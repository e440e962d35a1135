"""Under which condition the program itself raises what a handler caught, or what is under way.

Example: line 5 was not reached, as line 4 raised; its condition is at line 9:

     2  try:
     3      tell(request)
     4      prompt = prepare(request)
     5      forward(prompt)
     6  except TooLong:
     7      …
     8  def prepare(request):
     9      if len(request.tokens) > LIMIT:
    10          raise TooLong(request.id)
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from hangdoc.diagnosis.bounds import COMPARED, DEEPEST, LISTED, NAMED, TRIED
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.handlers import with_at
from hangdoc.diagnosis.source.queries import raises
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, walk
from hangdoc.model.asked import caught_by
from hangdoc.model.message import Condition

_ANY = {"Exception", "BaseException"}


def condition_of_raise(case: Case, ranks: tuple[int, ...]) -> BranchPoint | None:
    """The `if` whose `raise` the ranks are in an except or finally suite for; None where a call raised it, or they are
    in none.

    Example: `if x.isnan(): raise ValueError`, and rank 1 is in the `finally:` around its caller → that `if`.
    """
    for rank in ranks:
        journal = case.ranks[rank].journal if rank in case.ranks else None
        frame = next(iter(user_stack(journal.handled_at)), None) if journal is not None and journal.handled else None
        tree = case.sources.function(frame.file, frame.line) if frame is not None else None
        if frame is None or tree is None or journal is None or frame != journal.handled_at[0]:
            return None
        inner = next((g for g in reversed(guards(tree, frame.line)) if g.kind != "return"), None)
        if inner is None or inner.kind != "if" or not inner.taken or not raises(tree, inner.line):
            return None
        return BranchPoint(inner, frame.file, plain(frame.function), frame.line, 0, 0.0)
    return None


def raised_in_block(sources: Sources, file: str, line: int, error: str) -> list[Condition]:
    """The conditions under which the body of the `with` at that line, and what it calls, raise ``error``; [] where no
    line of the user's is seen to, or too many are.

    Example: `with phase("decode"): ⏎ rows.append(decode(record))`, and decode() raises Damaged under `if crc(record) !=
    record.crc:` → that `if`.
    """
    tree = sources.function(file, line)
    block = with_at(tree, line) if tree is not None else None
    if tree is None or block is None:
        return []
    search = _Search(sources, {error})
    lines = block.body[0].lineno, block.body[-1].end_lineno or block.body[-1].lineno
    found = dict.fromkeys(each.condition for each in search.raised(file, tree, block.body, lines))
    return list(found) if len(found) <= NAMED else []


def thrown_under(sources: Sources, file: str, line: int) -> list[Answer]:
    """The functions that raise what the handler at that line catches, each with the conditions of its `raise`.

    Python's own exceptions count where the body of the `try` calls the function: others raise them, too. Where it calls
    none that raises it, each function that raises the program's own exception counts.
    """
    _, handler = _try_of(sources, file, line) or (None, None)
    if handler is None or not caught_by(handler) - _ANY:
        return []
    found = _raised_in_try(sources, file, line) or [
        each for each in islice(_raised_anywhere(sources, handler), COMPARED) if not hasattr(builtins, each.error)
    ]
    by_function: dict[str, dict[Condition, None]] = {}
    for each in found:
        by_function.setdefault(each.function, {})[each.condition] = None
    if len(by_function) > LISTED:
        return []
    return [Answer(name, tuple(tests)[:LISTED], how="raises it under") for name, tests in by_function.items()]


@dataclass(frozen=True, slots=True)
class _Raised:
    """``error`` is raised in ``function`` under ``condition``, the innermost `if` around it."""

    error: str
    function: str
    condition: Condition


def _raised_in_try(sources: Sources, file: str, line: int) -> list[_Raised]:
    """What the body of the handler's `try`, and what that calls, raise of what it catches."""
    found = _try_of(sources, file, line)
    tree = sources.function(file, line)
    if found is None or tree is None:
        return []
    tried, handler = found
    search = _Search(sources, _classes_caught(sources, handler))
    raised = list(search.raised(file, tree, tried.body, (tried.body[0].lineno, tried.body[-1].end_lineno or line)))
    return raised if search.places <= TRIED else []


def _try_of(sources: Sources, file: str, line: int) -> tuple[ast.Try, ast.ExceptHandler] | None:
    """(the `try`, its handler) of the handler at that line."""
    tree = sources.function(file, line)
    tries = (n for n in walk(tree) if isinstance(n, ast.Try)) if tree is not None else ()
    return next(((node, h) for node in tries for h in node.handlers if h.lineno == line), None)


def classes_caught(sources: Sources, handler: ast.ExceptHandler) -> set[str]:
    """The names of the classes that it catches, with those that the program derives from them; 'BaseException' for an
    `except` of all."""
    names = caught_by(handler) or {"BaseException"}
    classes = [n for _, tree in sources.user_trees() for n in walk(tree) if isinstance(n, ast.ClassDef)]
    return names | {each.name for each in classes if names & set(map(last_name, each.bases))}


def _classes_caught(sources: Sources, handler: ast.ExceptHandler) -> set[str] | None:
    """The same; None for all."""
    found = classes_caught(sources, handler)
    return None if found & _ANY else found


def error_of(node: ast.Raise) -> str:
    """'ValueError' of `raise ValueError("…")`; '' of a bare `raise`."""
    return last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc) if node.exc is not None else ""


def _raised_anywhere(sources: Sources, handler: ast.ExceptHandler) -> Iterator[_Raised]:
    classes = _classes_caught(sources, handler) or set()
    for file, tree in sources.user_trees():
        for node in walk(tree):
            if isinstance(node, ast.Raise) and (raised := _raised_at(file, tree, node)) and raised.error in classes:
                yield raised


def _raised_at(file: str, tree: ast.AST, node: ast.Raise) -> _Raised | None:
    """What the statement raises; None where no `if` is around it, and for a bare `raise`."""
    around = [g for g in guards(tree, node.lineno) if g.kind == "if"] if node.exc is not None else []
    if node.exc is None or not around:
        return None
    error = error_of(node)
    function = getattr(enclosing_function(tree, node.lineno), "name", "")
    return _Raised(error, function, Condition(around[-1].condition, file, around[-1].line))


@dataclass(slots=True)
class _Search:
    """Follows calls to what raises one of ``classes`` (None: any)."""

    sources: Sources
    classes: set[str] | None
    places: int = 0
    read: set[int] = field(default_factory=set)

    def raised(
        self, file: str, tree: ast.AST, nodes: Iterable[ast.AST], lines: tuple[int, int], deep: int = DEEPEST
    ) -> Iterator[_Raised]:
        """What these lines of the nodes raise, and what they call."""
        for node in (each for top in nodes for each in walk(top)):
            line = getattr(node, "lineno", 0)
            if not lines[0] <= line <= lines[1]:
                continue
            if isinstance(node, ast.Raise):
                raised = _raised_at(file, tree, node)
                if raised is not None and (self.classes is None or raised.error in self.classes):
                    self.places += 1
                    yield raised
            elif isinstance(node, ast.Call) and deep:
                for where, called in self._called(node):
                    if id(called) not in self.read and len(self.read) < COMPARED and not holds(called, line):
                        self.read.add(id(called))
                        whole = (called.lineno, called.end_lineno or called.lineno)
                        yield from self.raised(where, called, [called], whole, deep - 1)

    def _called(self, call: ast.Call) -> list[tuple[str, ast.FunctionDef]]:
        """The functions that the call may run: those of its name."""
        return list(self.sources.user_functions(last_name(call.func)))
