"""The conditions under which one side alone has run lines of the program: the plainest thing a branch leaves behind.

Example: the interpreters' counters say that line 76 has run on rank 2 and on no other rank, of

    74  def load(self, path):
    75      if path.stat().st_size < self.floor:
    76          self.skip = True
    77          return None

→ `if path.stat().st_size < self.floor:`. Of the conditions around such a line it is the innermost that the other side
has tested as well. A line that the other side is still to come to says nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.bounds import DEEPEST, SCANNED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.lines import Lines
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, has_blocks, holds, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Stack

_JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True, slots=True)
class RanAlone:
    """One side has been under ``guard``, with the truth that it then had, and the other has not."""

    file: str
    function: str
    guard: Guard
    line: int
    """The first line under it that has run there."""
    side: int
    """Side 0, the culprits, or side 1."""
    sets: frozenset[str] = frozenset()
    """The last names of what the statements beside it set."""
    jumps: bool = False
    """These statements leave a function or a round of a loop, or raise."""

    @property
    def leads_out(self) -> bool:
        """True if who went one way here left the function, or a round of a loop, and who went the other way did not."""
        return self.jumps or self.guard.kind == "return"


def ran_alone(case: Case, ranks: SideRanks, *, awaited: bool = False) -> list[RanAlone]:
    """The conditions, each once, with the first line under it that one side alone has run.

    ``awaited``: side 1 waits for side 0, which has made all of its calls so far. Then whatever side 0 has run lies
    before the calls in which these ranks wait, and though they may come to that line in this round, they have passed it
    in the one in which side 0 ran it.
    """
    if not case.table:
        return []
    found: dict[tuple[str, int, str], RanAlone] = {}
    stacks = [_by_stack(case, side) for side in ranks]
    for side in (0, 1):
        mine, theirs = ranks[side], ranks[1 - side]
        for file, line in list(case.table.ran_alone(mine, theirs))[:SCANNED]:
            # Who is still to come to the line shows nothing; another one that has gone past it does.
            past = [
                rank
                for stack, there in stacks[1 - side].items()
                if (awaited and side == 0) or not _is_still_to_come(case.sources, [stack], file, line)
                for rank in there
            ]
            one = _decided(case.sources, case.table, file, line, past) if past else None
            if one is None or is_alike(one[1]):
                continue
            sets, jumps = beside(case.sources, file, one[2])
            left = RanAlone(file, one[0], one[1], line, side, sets=sets, jumps=jumps)
            found.setdefault((file, *one[1].place), left)
    return list(found.values())


def _by_stack(case: Case, ranks: tuple[int, ...]) -> dict[Stack, list[int]]:
    """The user's frames of the ranks' stacks → the ranks that are there: of thousands only some are elsewhere."""
    found: dict[Stack, list[int]] = {}
    for rank in ranks:
        stack = user_stack(case.activities[rank].stack) if rank in case.activities else ()
        found.setdefault(tuple(replace(frame, locals=()) for frame in stack), []).append(rank)
    return found


def _decided(
    sources: Sources, lines: Lines, file: str, line: int, others: Iterable[int]
) -> tuple[str, Guard, int] | None:
    """(function, the innermost condition around the line that the others have tested, a line under it); None where
    there is none, or the others have never called the function."""
    tree = sources.function(file, line)
    if tree is None or lines.never_called(others, file, line):
        return None
    for guard in reversed(guards(tree, _in_suite(tree, line))):
        if not (decides(guard) or is_while(guard)) or (guard.line == line and guard.kind != "try"):
            continue
        asked = _first_of_try(tree, guard) if guard.kind == "try" else guard.line
        if any(lines.lately(rank, file, asked) is not False for rank in lines.known(others)):
            return function_name(tree, line), guard, _in_suite(tree, line)
    return None


def _first_of_try(tree: ast.AST, guard: Guard) -> int:
    """The first line of the body whose exceptions the handler catches."""
    tries = (node for node in walk(tree) if isinstance(node, ast.Try))
    return next((n.body[0].lineno for n in tries if any(h.lineno == guard.line for h in n.handlers)), guard.line)


def _in_suite(tree: ast.AST, line: int) -> int:
    """The line; of a handler's own, which runs where something was raised, the first of its suite."""
    handlers = (node for node in walk(tree) if isinstance(node, ast.ExceptHandler))
    return next((node.body[0].lineno for node in handlers if node.lineno == line), line)


def _is_still_to_come(sources: Sources, stacks: list[Stack], file: str, line: int, deep: int = DEEPEST) -> bool:
    """True if a rank of these stacks is in the function, in front of the line; or, of a function that it is not in, if
    each call of it lies there."""
    tree = sources.function(file, line)
    if tree is None:
        return False
    name = function_name(tree, line)
    here = {(guard.place, guard.taken) for guard in guards(tree, line) if guard.kind != "loop"}
    inside = False
    for frame in (frame for stack in stacks for frame in stack):
        if frame.file != file or plain(frame.function) != name or not _same_function(sources, file, frame.line, line):
            continue
        inside = True
        now = {guard.place: guard.taken for guard in guards(tree, frame.line)}
        apart = any(now.get(place, taken) != taken for place, taken in here)
        if frame.line < line and not apart:
            return True
    calls = sources.user_calls(name) if not inside and deep else []
    calls = [each for each in calls if getattr(each.function, "name", "") != name]
    return bool(calls) and all(_is_still_to_come(sources, stacks, c.file, c.call.lineno, deep - 1) for c in calls)


def _same_function(sources: Sources, file: str, line: int, other: int) -> bool:
    trees = [(sources.function(file, each), each) for each in (line, other)]
    found = [enclosing_function(tree, each) for tree, each in trees if tree is not None]
    return len(found) == 2 and getattr(found[0], "lineno", 0) == getattr(found[1], "lineno", 0)


def decides(guard: Guard) -> bool:
    """True for a condition and for an `except` suite: a loop or a `try:` only stands around what it holds."""
    if guard.kind == "try":
        return guard.taken and guard.condition.startswith("except")
    return guard.kind in (*CONDITIONS, "return", "match")


def is_while(guard: Guard) -> bool:
    """True for the body of a `while`, whose test decides whether it runs at all."""
    return guard.kind == "loop" and guard.condition.startswith("while ") and not guard.in_header


def is_alike(guard: Guard) -> bool:
    """True for a condition on the rank, or one that is the same on every rank, or true in some rounds."""
    if guard.names == ("__name__",):
        return True
    on_rank = any(map(is_rank_name, guard.names)) or pattern("rank_word").search(guard.condition) is not None
    same = pattern("same_everywhere").search(guard.condition) is not None
    return on_rank or same or (" % " in guard.condition and not _tests_more(guard))


def _tests_more(guard: Guard) -> bool:
    """True if a part of the condition tests something besides the rounds: `self.draft is not None and n % 8 == 7`."""
    parts = re.split(r"\b(?:and|or)\b", guard.condition.partition(" ")[2].rstrip(":"))
    words = [set(re.findall(r"[A-Za-z_][\w.]*", part)) - {"not", "is", "None", "in", "True", "False"} for part in parts]
    counted = set().union(*(own for own, part in zip(words, parts, strict=True) if " % " in part))
    return any(own - counted for own, part in zip(words, parts, strict=True) if " % " not in part)


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """The last names of what a plain statement sets, counts, or puts something into or takes it from."""
    targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else []
    for target in [*targets, *([statement.target] if isinstance(statement, ast.AugAssign) else [])]:
        yield last_name(target.value if isinstance(target, ast.Subscript) else target)
    changing = {*names("changes_content"), *names("takes_items")}
    for node in walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changing:
            yield last_name(node.func.value)


def beside(sources: Sources, file: str, line: int) -> tuple[frozenset[str], bool]:
    """(the last names of what the statements of the line's block set, count or fill, whether one of them leaves the
    suite). Example: of `_, old = self.slots.popitem() ⏎ self.used -= old.size` → 'old', 'slots' and 'used'."""
    tree = sources.function(file, line)
    sets: set[str] = set()
    jumps = False
    for node in walk(enclosing_function(tree, line)) if tree is not None else ():
        for block in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
            if not isinstance(block, list) or not any(holds(each, line) and not has_blocks(each) for each in block):
                continue
            sets.update(name for each in block if not has_blocks(each) for name in _changed_by(each))
            jumps = isinstance(block[-1], _JUMPS) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return frozenset(sets - {""}), jumps
