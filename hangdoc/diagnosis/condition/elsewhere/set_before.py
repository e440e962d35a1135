"""What decided a condition that only asks a flag, a choice, a list or an argument: where that was set, filled or
chosen, one to three steps back.

Example: `if self.stale:` (table.py:50) was True on rank 1 alone, and

    33  if value > 4 * self.mean:
    34      self.stale = True

→ `self.stale` is set under the `if` at line 33. What is the same on all ranks by its words is no reason, and more than
three conditions are none either.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from hangdoc.diagnosis.bounds import COMPARED, DEEPEST, LISTED, NAMED, TRIED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.told_settings import (
    COMPREHENSIONS,
    WORDS,
    agreed_on,
    asks_for_item,
    by_its_call,
    common_guards,
    condition_of,
    gone_over,
    in_words,
    is_agreed,
    is_plain,
    is_there,
    names_alike,
    place_of_setting,
    resets,
    tells,
    tells_the_place,
)
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.settings import Place, Setting, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, names_in, text_of
from hangdoc.model.asked import is_constant
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

REORDERED = f"{WORDS['ordered']} under"
"""How a test decides what a loop goes over, where its suite reverses, sorts or shuffles that."""
_HANDED_ON = ("given", "item", "returned")
"""Ways of a value that are no step: it is the same under another name."""

Alike = Callable[[str], bool]
"""Whether all ranks are seen to have the same value under a name of the condition."""


def set_before(
    sources: Sources, file: str, line: int, alike: Alike = lambda _: False, *, by_rank: bool = True
) -> list[Answer]:
    """What set the values that the condition, loop or setting at that line goes by; [] where they were computed there,
    and where nothing tells which of several places set them. ``by_rank``: conditions on the rank alone count."""
    at = place_of(sources, file, line)
    if at is None or is_library(Frame(file, line, "")):
        return []
    outside = {(file, guard.line) for guard in guards(at.tree, line)}
    walk = _Walk(sources, by_rank, {(file, line)}, outside, {getattr(at.function, "name", "")})
    for expression in _asked_at(at, line):
        operands = [each for each in _operands(expression) if not _seen_alike(each, alike)]
        found = [told for each in operands if (told := list(walk.back(at, each, DEEPEST)))]
        if found and len(found) <= NAMED:
            return within_limit(answer for told in found for answer in told)
    return []


def set_by(sources: Sources, at: Place, value: ast.expr, *, by_rank: bool = True) -> list[Answer]:
    """What set the value of the expression at that place, filled or chose it, the nearest to it first; ``by_rank``:
    conditions on the rank alone count."""
    walk = _Walk(sources, by_rank, set(), set(), {getattr(at.function, "name", "")})
    return list(walk.back(at, value, DEEPEST))


def with_settings(
    sources: Sources,
    file: str,
    line: int,
    found: list[Answer],
    alike: Alike = lambda _: False,
    *,
    by_rank: bool = True,
) -> list[Answer]:
    """What functions answer by that the condition asks, with what set the values that these tests go by; else what set
    the condition's own. Three tests in all."""
    told = sum(len(answer.tests) for answer in found)
    if not found:
        return set_before(sources, file, line, alike, by_rank=by_rank)
    deeper = [
        each for a in found for test in a.tests for each in set_before(sources, test.file, test.line, by_rank=False)
    ]
    known = {(test.file, test.line) for a in found for test in a.tests} | {(file, line)}
    deeper = [replace(a, tests=tuple(t for t in a.tests if (t.file, t.line) not in known)) for a in deeper]
    return [*found, *within_limit((each for each in deeper if each.tests), LISTED - told)]


def within_limit(found: Iterable[Answer], most: int = LISTED) -> list[Answer]:
    """The answers with so many tests in all, each once."""
    left: dict[Condition, Answer] = {}
    for answer in found:
        for test in answer.tests:
            left.setdefault(test, answer)
    kept = list(left.items())[: max(0, most)]
    return [replace(a, tests=tuple(t for t, of in kept if of is a)) for a in {id(a): a for _, a in kept}.values()]


def _asked_at(at: Place, line: int) -> Iterator[ast.expr]:
    """What the statement at that line goes by."""
    for node in ast.walk(at.tree):
        if getattr(node, "lineno", 0) != line:
            continue
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.value is not None:
            yield node.value
    for node in ast.walk(at.tree):
        if isinstance(node, ast.Match) and any(case.pattern.lineno == line for case in node.cases):
            yield node.subject
        elif isinstance(node, ast.comprehension) and node.target.lineno == line:
            yield node.iter


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of `a and not b`, each of which can have decided."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand)
    elif isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _operands(each)
    else:
        yield test


def _seen_alike(test: ast.expr, alike: Alike) -> bool:
    tested = names_in(test)
    return bool(tested) and all(map(alike, tested))


@dataclass(slots=True)
class _Walk:
    """The walk back from one condition.

    ``seen``: (file, line) of what was come to, which is no news; ``outside``: of the conditions around the first one,
    under which it is set as well, and only a count says more; ``asked``: the last names of what was asked so far, and
    of the function that asks; ``wanted``: the constants that the tests compare with, as text: of what fills a list,
    what puts one of these in says more. Example: of `if op is Op.STOP:` in `for op in plan:`, `plan.append(Op.STOP)`.
    """

    sources: Sources
    by_rank: bool
    seen: set[tuple[str, int]]
    outside: set[tuple[str, int]]
    asked: set[str]
    settled: set[tuple[str, int, int]] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)
    for_none: set[str] = field(default_factory=set)
    """What is asked to be None or not, as text."""
    entered: dict[ast.AST, ast.Call] = field(default_factory=dict)
    """Function → the call through which the walk came into it: what its parameters stand for."""

    # One branch for each kind of expression.
    def back(self, at: Place, value: ast.expr, steps: int, part: int = -1, *, counts: bool = False) -> Iterator[Answer]:
        """What set the expression; ``counts``: of a comparison, where only what is counted or filled under a condition
        says more than the comparison does."""
        if steps <= 0:
            return
        if isinstance(value, ast.UnaryOp):
            yield from self.back(at, value.operand, steps, counts=counts)
        elif isinstance(value, ast.NamedExpr | ast.Starred | ast.Await):
            yield from self.back(at, value.value, steps, part, counts=counts)
        elif isinstance(value, ast.BoolOp | ast.BinOp):
            for each in value.values if isinstance(value, ast.BoolOp) else (value.left, value.right):
                yield from self.back(at, each, steps, counts=counts)
        elif isinstance(value, ast.Compare):
            yield from self._compared(at, value, steps)
        elif isinstance(value, ast.Subscript):
            for each in (value.slice, value.value):
                yield from self.back(at, each, steps, counts=counts)
        elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) <= NAMED:
            for each in value.elts:
                yield from self.back(at, each, steps, counts=counts)
        elif isinstance(value, COMPREHENSIONS):
            yield from self._of_items(at, value, steps)
        elif isinstance(value, ast.Call):
            yield from self._called(at, value, steps, part, counts=counts)
        elif dotted(value) and not self._is_constant(at, value) and not pattern("rank_word").search(dotted(value)):
            yield from self._set(at, value, steps, part, counts=counts)

    def _is_constant(self, at: Place, value: ast.expr) -> bool:
        """True for what is named like a constant, unless it is set in an `except` suite as well: `FUSED = False`."""
        found = settings(self.sources, at, value) if last_name(value).isupper() else []
        around = [guards(each.at.tree, each.line) for each in found if len(found) > 1]
        caught = any(g.kind == "try" and g.taken and g.condition.startswith("except") for each in around for g in each)
        return last_name(value).isupper() and not caught

    def _compared(self, at: Place, test: ast.Compare, steps: int) -> Iterator[Answer]:
        if isinstance(test.ops[0], ast.Eq | ast.Is):
            self.wanted.add(text_of(test.comparators[0]))
        if isinstance(test.ops[0], ast.Is | ast.IsNot) and text_of(test.comparators[0]) == "None":
            self.for_none.add(text_of(test.left))
        if all(map(is_constant, test.comparators)):
            yield from self.back(at, test.left, steps)
            return
        contained = isinstance(test.ops[0], ast.In | ast.NotIn)
        for each in test.comparators[:1] if contained else (test.left, *test.comparators):
            yield from self.back(at, each, steps, counts=True)

    def _of_items(
        self, at: Place, value: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, steps: int
    ) -> Iterator[Answer]:
        for test in (test for each in value.generators for test in each.ifs):
            yield from self.back(at, test, steps)
        if not isinstance(value, ast.DictComp) and not isinstance(value.elt, ast.Name):
            yield from self.back(at, value.elt, steps)
        yield from self.back(at, value.generators[0].iter, steps)

    def _called(self, at: Place, call: ast.Call, steps: int, part: int, *, counts: bool) -> Iterator[Answer]:
        if settings(self.sources, at, call, part):
            yield from self._set(at, call, steps, part, counts=counts)
            return
        if last_name(call.func) in names("drops_items") and call.args:
            picks = call.args[0]
            asked = picks.body if isinstance(picks, ast.Lambda) else ast.Call(picks, [], [])
            yield from self.back(at, asked, steps)
        if last_name(call.func) in names("hands_value_on") or last_name(call.func) in names("wraps_items"):
            for each in call.args:
                yield from self.back(at, each, steps, counts=counts)
        if isinstance(call.func, ast.Subscript):  # `HANDLERS[kind](x)`
            yield from self.back(at, call.func, steps)
        elif isinstance(call.func, ast.Attribute) and not self.sources.user_definitions(call.func.attr):
            looked_up = bool(call.args) and call.func.attr in names("looks_up_item")
            items = looked_up or call.func.attr in names("gives_items")
            yield from self.back(at, call.func.value, steps, counts=counts or not items)

    def _set(self, at: Place, value: ast.expr, steps: int, part: int = -1, *, counts: bool) -> Iterator[Answer]:
        """What the settings of a name, an attribute or a call are under, else what they set it to."""
        yield from self._of_settings(at, value, settings(self.sources, at, value, part), steps, part, counts=counts)

    def _of_settings(
        self, at: Place, value: ast.expr, found: list[Setting], steps: int, part: int, *, counts: bool
    ) -> Iterator[Answer]:
        found = [each for each in found if place_of_setting(each) not in self.settled]
        if isinstance(value, ast.Name) and (through := self.entered.get(at.function)) is not None:
            given = {(n.lineno, n.col_offset) for n in (*through.args, *(each.value for each in through.keywords))}
            found = [each for each in found if each.how != "given" or place_of_setting(each)[1:] in given]
        if text_of(value) in self.for_none:  # `p.grad *= scale` does not decide whether there is one
            found = [each for each in found if not isinstance(each.node, ast.AugAssign)]
        if counts and isinstance(value, ast.Name | ast.Call):
            found = [each for each in found if each.how in (*WORDS, "given", "item") or is_plain(each.value)]
        found = [each for each in found if self._puts_in_wanted(each) and guards(each.at.tree, each.line)] or found
        if not found or len(found) > TRIED or len(self.settled) > COMPARED:
            return
        self.settled |= set(map(place_of_setting, found))
        if isinstance(value, ast.Call):
            self.entered |= dict.fromkeys((each.at.function for each in found if each.how == "returned"), value)
        self.asked.add(last_name(value.func if isinstance(value, ast.Call) else value))
        name = f"{last_name(value.func)}()" if isinstance(value, ast.Call) else text_of(value)
        common = common_guards([each for each in found if each.at.function is at.function])
        texts = {text_of(each.value) for each in found if each.how == "given" and each.value is not None}
        further: list[tuple[Place, ast.expr, int, bool, int]] = []
        for setting in found:
            each, guard = setting, self._around(setting, common if setting.at.function is at.function else set())
            if setting.how == "given" and len(texts) == 1:
                guard = None  # it decides whether the function is called, and not what it is given
            if guard is None and (calling := by_its_call(self.sources, setting)) is not None:
                guard = self._around(calling, set())
                each = calling if guard is not None else setting
            if counts and each.how in _HANDED_ON:
                guard = None
            function = getattr(each.at.function, "name", "")
            left = steps - (each.how not in _HANDED_ON)
            if not counts and tells(each) and not is_agreed(each):
                left = steps - 1
                sets = each.how != "returned"
                how = "is set by" if sets else "is decided by"
                by = Condition(each.text, each.at.file, each.line)
                yield Answer(function, (by,), subject=name, how=how, sets=sets)
            if guard is not None:
                condition, test = condition_of(each.at, guard)
                self.seen.add((each.at.file, guard.line))
                further += [(each.at, test, -1, False, steps - 1)] if test is not None else []
                yield Answer(function, (condition,), subject=name, how=in_words(each, guard))
            over = gone_over(each) if guard is None and each.how == "filled" else None
            further += [(each.at, over, -1, False, steps - 1)] if over is not None else []
            followed = is_plain(each.value) or each.how == "item"
            if each.value is not None and not (counts and guard is None and not followed):
                further.append((each.at, each.value, each.part if each.part >= 0 else part, counts, left))
        for place, inner, rest, counting, left in further:
            yield from self.back(place, inner, left, rest, counts=counting)

    def _puts_in_wanted(self, setting: Setting) -> bool:
        call = setting.node
        return (
            setting.how == "filled" and isinstance(call, ast.Call) and bool(self.wanted & set(map(text_of, call.args)))
        )

    def _around(self, setting: Setting, common: set[tuple[tuple[int, str], bool]]) -> Guard | None:
        """The innermost condition around the setting that may differ between the ranks, and is no test of the very
        thing, as where a count begins anew."""
        own = dotted(setting.target) if setting.target is not None else ""
        around = guards(setting.at.tree, setting.line)
        rounds = {name for guard in around for name in guard.rounds}
        for guard in reversed(around):
            place = setting.at.file, guard.line
            caught = guard.kind == "try" and guard.taken and guard.condition.startswith("except")
            is_while = guard.condition.startswith("while ") and bool(guard.names)
            ends = guard.kind == "loop" and is_while and isinstance(setting.node, ast.Yield)
            if guard.kind not in ("if", "return", "match") and not (caught or ends):
                continue
            if (
                (guard.place, guard.taken) in common
                or place in self.seen
                or (place in self.outside and setting.how not in WORDS)
            ):
                continue
            if own in guard.names and (resets(setting) or len(guard.names) == 1 or asks_for_item(guard, own)):
                continue
            if is_there(setting, guard):
                continue
            tests = {name.rpartition(".")[2] for name in guard.names}
            if resets(setting) and tests and tests <= self.asked:
                continue
            if not self.by_rank and guard.names and all(map(tells_the_place, guard.names)):
                continue
            tested = tuple(name for name in guard.names if name not in rounds)
            if caught or not (
                names_alike(guard.condition, tested, counted=tested != guard.names) or agreed_on(setting.at, guard)
            ):
                return guard
        return None


def is_of_a_part(sources: Sources, condition: Condition) -> bool:
    """True if the rank decides that condition, or what it asks: whoever has that part has been there from the start.

    Example: `if self.last:`, set by `self.last = rank == world - 1` → True.
    """
    answers = (each for each in set_before(sources, condition.file, condition.line) if each.sets)
    tests = (condition, *(test for each in answers for test in each.tests))
    return any(pattern("rank_word").search(each.source) and not _asks_more(each.source) for each in tests)


def _asks_more(test: str) -> bool:
    """True of `rank == 2 and late` and of `step % world == rank`, which come out so at a time of their own."""
    return not {"and", "or", "%"}.isdisjoint(re.findall(r"\w+|%", test))
