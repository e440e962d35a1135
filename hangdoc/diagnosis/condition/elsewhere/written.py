"""The conditions under which a side wrote what no rank of the other side did: a line in a rare branch tells who was in
it. Example: in the output, once, `rank 4: no files left`, and

    104  mine = dump.files[rank::world]
    105  if not mine:
    106      log.info("rank %d: no files left", rank)
    107      return

→ `if not mine:` at line 105. What ranks wrote before rounds that they have gone through since says nothing, and
neither does what one rank alone ever writes, or what every rank does.
"""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hangdoc.diagnosis.bounds import DEEPEST, NAMED, SCANNED
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.evaluate import test_at, truth
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.queries import without_handing_on
from hangdoc.diagnosis.source.rank_tests import asks_for_rank
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, function_name, holds, last_name, text_of, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import Written

_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WrittenUnder:
    """``line`` was written under the condition, or past it where that was not ``taken``, and ``times`` such a line.
    ``ranks``: the writers, as far as the line or its file tells."""

    condition: Condition
    function: str
    taken: bool
    line: Written
    ranks: tuple[int, ...]
    times: int = 1


def written_under(
    sources: Sources,
    lines: Sequence[Written],
    stacks: Collection[Stack],
    writers: tuple[int, ...],
    others: tuple[int, ...],
) -> list[WrittenUnder]:
    """The conditions under which ``writers`` wrote what none of ``others`` did, in the order of the lines.

    ``stacks``: where the writers are and have parted. What a line without a rank tells of has to be called from there.
    """
    by_place: dict[_Place, list[Written]] = {}
    for line in lines:
        for place in line.places:
            by_place.setdefault(place, []).append(line)
    outputs: dict[str, list[Written]] = {}
    for line in lines:
        outputs.setdefault(line.output, []).append(line)
    asked = _Asked(sources, outputs, stacks, writers, others)
    found: dict[Condition, WrittenUnder] = {}
    for line in lines:
        if len(found) >= NAMED:
            break
        first = [place for place in line.places if line is by_place[place][0]]
        told = [place for place in first if asked.is_told_by(place, by_place[place])]
        told = [place for place in told if asked.says(place)] or told
        for place in sorted(told, key=lambda at: not asked.is_raised(at)):
            under = asked.condition_of(place, known=line.rank is not None)
            if under is not None:
                ranks = tuple(sorted({each.rank for each in by_place[place] if each.rank is not None}))
                found.setdefault(under[0], WrittenUnder(*under, line, ranks, len(by_place[place])))
    return list(found.values())[:NAMED]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is known of all lines, for the questions about one statement."""

    sources: Sources
    outputs: Mapping[str, Sequence[Written]]
    """The lines of each file, in their order."""
    stacks: Collection[Stack]
    writers: tuple[int, ...]
    others: tuple[int, ...]
    under_rank: dict[_Place, bool] = field(default_factory=dict)

    def is_told_by(self, place: _Place, own: list[Written]) -> bool:
        """True if the writers alone wrote what the statement says, and not long before they came where they are."""
        ranks = {line.rank for line in own if line.rank is not None}
        if len([line for line in own if line.rank is None]) > (0 if ranks else len(self.writers)):
            return False  # each rank may have written it
        if ranks and not ranks <= set(self.writers):
            return False
        if ranks <= {0} and self._is_for_rank_0(place):
            return False
        return not self._has_gone_on(own[0])

    def _is_for_rank_0(self, place: _Place) -> bool:
        """True if only rank 0 would write it: by what the program sets for its logs, or by what it writes with."""
        call = self._call_around(place)
        name = last_name(call.func) if call is not None else ""
        if name in names("writes_warning"):
            return False
        if any(line.rank and line.rank in self.others for lines in self.outputs.values() for line in lines):
            return False
        own = self.sources.user_definitions(name) if name not in names("writes_line") else []
        tests = (node.test for _, body in own for node in walk(body) if isinstance(node, ast.If))
        return any(map(_tests_rank, tests)) or (name not in names("writes_text") and self._limits_logs())

    def _limits_logs(self) -> bool:
        """True if what a logger writes depends on the rank: `setLevel(INFO if rank == 0 else WARNING)`."""
        for each in self.sources.user_calls(*names("limits_logs")):
            values = (*each.call.args, *(word.value for word in each.call.keywords if word.arg == "level"))
            if any(isinstance(part, ast.IfExp) and _tests_rank(part.test) for v in values for part in walk(v)):
                return True
            if any(_is_of_rank(self.sources, each.file, guard) for guard in guards(each.tree, each.call.lineno)):
                return True
        return False

    def _has_gone_on(self, line: Written) -> bool:
        """True if the job has gone round since: a line of one statement comes again and again."""
        later = [each for each in self.outputs[line.output] if each.number > line.number]
        known = Counter((each.places[0], each.rank) for each in later if each.rank is not None)
        unknown = Counter(each.places[0] for each in later if each.rank is None)
        ranks = len(self.writers) + len(self.others)
        return max(known.values(), default=0) > NAMED or any(
            count > (NAMED if self._is_under_rank(where) else NAMED * ranks) for where, count in unknown.items()
        )

    def _is_under_rank(self, place: _Place) -> bool:
        """True if a condition on the rank is around the statement: a line of it is of one round, and not of each
        rank's."""
        if place not in self.under_rank:
            tree = self.sources.function(*place)
            around = guards(tree, place[1]) if tree is not None else []
            self.under_rank[place] = any(_is_of_rank(self.sources, place[0], guard) for guard in around)
        return self.under_rank[place]

    def condition_of(self, place: _Place, *, known: bool) -> tuple[Condition, str, bool] | None:
        """The innermost condition around the statement, the function that it is in, and the truth that it had; None
        where none decided it."""
        file, line = place
        if not known and not self._is_on_the_way(place):
            return None
        for _ in range(DEEPEST):
            tree = self.sources.function(file, line)
            if tree is None:
                return None
            here = function_name(tree, line)
            around = list(reversed(without_handing_on(tree, guards(tree, line))))
            of_rank = [guard for guard in around if _is_of_rank(self.sources, file, guard)]
            if not all(known and self._lets_others(tree, guard) for guard in of_rank):
                return None
            around = [guard for guard in around if guard not in of_rank]
            deciding = [guard for guard in around if _decides(guard)]
            if len(deciding) > 1 and _only_writes(tree, deciding[0]):
                del deciding[0]
            if deciding:
                return Condition(deciding[0].condition, file, deciding[0].line), here, deciding[0].taken
            calls = self.sources.user_calls(here)
            if here == "<module>" or len(calls) != 1:
                return None
            file, line = calls[0].file, calls[0].call.lineno
        return None

    def _lets_others(self, tree: ast.AST, guard: Guard) -> bool:
        """True if the test of the rank went alike on one of the others: `if rank != 0:` of ranks 0 to 3, on rank 3."""
        test = test_at(tree, guard.line)
        named = [name for name in guard.names if is_rank_name(name)]
        if test is None or len(named) != 1 or guard.names != (named[0],):
            return False
        if not all(truth(test, {named[0]: str(rank)}) == guard.taken for rank in self.writers):
            return False
        return any(truth(test, {named[0]: str(rank)}) == guard.taken for rank in self.others)

    def _is_on_the_way(self, place: _Place) -> bool:
        """True if the statement is in a function on one of the stacks, or in one that these call."""
        tree = self.sources.function(*place)
        wanted = function_name(tree, place[1]) if tree is not None else ""
        frames = [frame for stack in self.stacks for frame in user_stack(stack)]
        if not frames:
            return True  # what the writers did was not seen
        waiting = deque(dict.fromkeys(plain(frame.function) for frame in frames if frame.function != "<module>"))
        reached = set(waiting)
        while waiting and wanted not in reached and len(reached) < SCANNED:
            for _, body in self.sources.user_definitions(waiting.popleft()):
                for name in _named_in(body) - reached:
                    if self.sources.user_definitions(name):
                        reached.add(name)
                        waiting.append(name)
        return wanted in reached

    def is_raised(self, place: _Place) -> bool:
        """True if it is the text of an exception: what wrote it only handed that on."""
        tree = self.sources.function(*place)
        raises = walk(tree) if tree is not None else ()
        return any(isinstance(node, ast.Raise) and holds(node, place[1]) for node in raises)

    def says(self, place: _Place) -> bool:
        """True if the statement itself writes or raises the text: a path that a function returns may be in any line."""
        tree = self.sources.function(*place)
        said = walk(tree) if tree is not None else ()
        return any(isinstance(node, ast.Expr | ast.Raise) and holds(node, place[1]) for node in said)

    def _call_around(self, place: _Place) -> ast.Call | None:
        """The innermost call on the statement's line."""
        tree = self.sources.function(*place)
        function = enclosing_function(tree, place[1]) if tree is not None else None
        calls = [n for n in walk(function) if isinstance(n, ast.Call)] if function is not None else []
        around = [call for call in calls if holds(call, place[1])]
        return min(around, key=lambda call: (call.end_lineno or 0) - call.lineno, default=None)


def _named_in(body: ast.AST) -> set[str]:
    """What a function calls or hands on, by its last name."""
    return {last_name(node) for node in walk(body) if isinstance(node, ast.Attribute | ast.Name)}


def _decides(guard: Guard) -> bool:
    """True for a guard that some rounds pass and others do not; loops and `try:` stand around what they hold."""
    if guard.kind == "try":
        return guard.taken and not guard.is_tried and guard.condition != "finally:"
    alike = "__name__" in guard.names or pattern("same_everywhere").search(guard.condition)
    return guard.kind in ("if", "return", "match") and not alike


def _only_writes(tree: ast.AST, guard: Guard) -> bool:
    """True for `if not self.warned: ⏎ log.warning(…)`: it decides whether a line is written, and nothing else."""
    nodes = (n for n in walk(tree) if isinstance(n, ast.If) and n.lineno == guard.line)
    arms = [node.body if guard.taken else node.orelse for node in nodes]
    writes = names("writes_line")
    return guard.kind == "if" and any(
        all(
            isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and last_name(s.value.func) in writes for s in arm
        )
        for arm in arms
    )


def _is_of_rank(sources: Sources, file: str, guard: Guard) -> bool:
    """True for a condition on the rank: the other ranks never come past it."""
    if guard.kind not in ("if", "return", "expression", "match"):
        return False
    named = any(is_rank_name(name) for name in guard.names) or pattern("rank_word").search(guard.condition)
    return bool(named) or asks_for_rank(sources, file, guard.line)


def _tests_rank(test: ast.AST) -> bool:
    text = text_of(test)
    return bool(pattern("rank_word").search(text)) or any(
        is_rank_name(dotted(part)) for part in walk(test) if isinstance(part, ast.Name | ast.Attribute)
    )
