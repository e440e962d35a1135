"""What decides a value of the user's, followed back from where a loop or a library gets it.

Example: `for x, y in self.loader:` ends on one rank, and nothing around it says why:

    31  def __iter__(self):
    32      order = [i for i in range(len(self.data)) if self.data.level[i] <= self.level]
    33      return iter(order)
    …   self.loader = DataLoader(self.data, batch_size=4, sampler=LevelSampler(self.data))

→ the test in line 32: the loop goes over a DataLoader, which was given a sampler, whose items that comprehension keeps.
A condition under which one side alone has run lines comes first, as `if self.recent() > self.bar: ⏎ self.level += 1`
may, then what a value that differs leads to, then what is nearest. A test that only asks whether something is there
(`… if skip else …`) says less than what decided that, some steps further.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.condition.elsewhere.answers import answers_of_given
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.loops.iterators import conditions_of_items
from hangdoc.diagnosis.condition.loops.left_out import is_full
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import is_generator
from hangdoc.diagnosis.source.settings import Place, Setting, function_called, returned, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, names_in, text_of
from hangdoc.diagnosis.source.values import SideRanks, Values, is_hidden, sides_differ
from hangdoc.model.message import Condition

_MOST_LEVELS = 16
"""Steps back from the value; chosen by hand."""
_MOST_VALUES = 120
"""Expressions that are looked into; chosen by hand."""
_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAKES_ITEMS = ("__iter__", "__next__", "__len__", "__bool__")


def decided_back(case: Case, ranks: SideRanks, at: Place, expression: ast.expr) -> list[Condition]:
    """The user's conditions that decide the value: those under which one side alone has run lines, else the nearest
    ones; [] where there are none, or too many to tell.

    ``ranks``: of the two sides, whose values are compared where they were seen.
    """
    return _search(case, ranks).back_from(at, expression)


def decided_back_of_items(case: Case, ranks: SideRanks) -> list[Condition]:
    """The same of what the program's own samplers, data sets and loaders hand out, wherever they are used."""
    search = _search(case, ranks)
    found: dict[Condition, None] = {}
    for name in _MAKES_ITEMS[:3]:
        for file, function in case.sources.user_functions(name):
            for each in returned(file, function):
                if each.value is not None and dotted(each.value) != "self":
                    found |= dict.fromkeys(search.back_from(each.at, each.value))
    return list(found) if len(found) <= _MOST else []


def _search(case: Case, ranks: SideRanks) -> _Search:
    apart = frozenset((each.file, each.guard.line) for each in ran_alone(case, ranks))
    return _Search(case.sources, case.values, ranks, apart)


@dataclass(frozen=True, slots=True)
class _Step:
    """An expression that takes part in the value; ``differs``: so does one between the two, by what was seen."""

    at: Place
    expression: ast.expr
    differs: bool = False


@dataclass(slots=True)
class _Found:
    """Of one level: the conditions there, those that only ask whether something is there, and what to look into."""

    telling: dict[Condition, bool] = field(default_factory=dict)
    weak: dict[Condition, bool] = field(default_factory=dict)
    further: list[_Step] = field(default_factory=list)

    def add(self, test: Condition, asked: ast.expr | None, *, differs: bool) -> None:
        """A condition; ``differs``: a value on the way to it was seen to differ."""
        into = self.weak if asked is not None and _asks_presence(asked) else self.telling
        into[test] = into.get(test, False) or differs


@dataclass(slots=True)
class _Search:
    """Each expression is looked into once."""

    sources: Sources
    values: Values
    ranks: SideRanks
    apart: frozenset[tuple[str, int]]
    """(file, line) of the conditions under which one side alone has run lines."""
    read: set[tuple[str, str]] = field(default_factory=set)

    def back_from(self, at: Place, expression: ast.expr) -> list[Condition]:
        nearest: dict[Condition, bool] = {}
        weak: dict[Condition, bool] = {}
        waiting = [_Step(at, expression)]
        for _ in range(_MOST_LEVELS):
            found = _Found()
            for step in waiting:
                self._look(step, found)
            apart = [each for each in found.telling if (each.file, each.line) in self.apart]
            if apart:
                return apart[:_MOST]
            nearest = nearest or found.telling
            weak |= found.weak
            waiting = found.further
            if not waiting or (nearest and not self.apart) or len(self.read) > _MOST_VALUES:
                break
        chosen = _chosen(nearest or weak)
        return chosen if len(chosen) <= _MOST else []

    def _look(self, step: _Step, found: _Found) -> None:
        key = (step.at.file, f"{getattr(step.at.function, 'lineno', 0)}:{ast.dump(step.expression)}")
        if key in self.read:
            return
        self.read.add(key)
        here = step.expression
        if isinstance(here, ast.Name | ast.Attribute):
            self._of_name(step, here, found)
        elif isinstance(here, ast.Call):
            self._of_call(step, here, found)
        elif isinstance(here, _COMPREHENSIONS):
            for part in here.generators:
                for test in part.ifs:
                    self._test(step, test, found)
                    found.further.append(_Step(step.at, test, step.differs))
                found.further.append(_Step(step.at, part.iter, step.differs))
            element = here.value if isinstance(here, ast.DictComp) else here.elt
            if isinstance(element, _COMPREHENSIONS):  # columns of rows
                found.further.append(_Step(step.at, element, step.differs))
        elif isinstance(here, ast.IfExp):
            self._test(step, here.test, found)
            found.further += [_Step(step.at, each, step.differs) for each in (here.body, here.orelse, here.test)]
        else:
            found.further += [_Step(step.at, each, step.differs) for each in _operands(here)]

    def _test(self, step: _Step, test: ast.expr, found: _Found) -> None:
        if _may_differ(names_in(test), text_of(test)):
            found.add(Condition(f"if {text_of(test)}", step.at.file, test.lineno), test, differs=step.differs)

    def _differs(self, at: Place, name: str) -> bool:
        """True if a plain value was seen to differ. One that is the same now may be of another round."""
        seen = self.values.of(at.file, getattr(at.function, "name", "<module>"), name) if name else {}
        return not any(is_hidden(each) for each in seen.values()) and sides_differ(seen, self.ranks) is True

    def _of_name(self, step: _Step, name: ast.Name | ast.Attribute, found: _Found) -> None:
        if is_rank_name(dotted(name)):
            return
        setting = settings(self.sources, step.at, name)
        differs = step.differs or self._differs(step.at, dotted(name))
        for each in setting:
            self._set_by(each, last_name(name), differs, found)
        if setting:
            return
        made = self.sources.user_definitions(last_name(name))  # a function that a library is given, as by `map(keep)`
        if len(made) == 1:
            self._of_function(*made[0], differs, found)
        elif isinstance(name, ast.Attribute):
            found.further.append(_Step(step.at, name.value, differs))

    def _set_by(self, each: Setting, name: str, differs: bool, found: _Found) -> None:
        """What the setting is under, and what it sets."""
        if each.how != "given":
            self._around(each.at, each.line, name, differs, found)
        if each.value is not None:
            found.further.append(_Step(each.at, each.value, differs))

    def _around(self, at: Place, line: int, name: str, differs: bool, found: _Found) -> None:
        around = [g for g in guards(at.tree, line) if g.kind in (*CONDITIONS, "return")]
        around = [g for g in around if g.kind != "expression" and getattr(at.function, "lineno", 0) <= g.line]
        for guard in reversed(around):
            asked = {each.rpartition(".")[2] for each in guard.names}
            if name in asked or not _may_differ(guard.names, guard.condition) or is_full(at.function, guard):
                continue
            found.telling[Condition(guard.condition, at.file, guard.line)] = differs
            return

    def _of_call(self, step: _Step, call: ast.Call, found: _Found) -> None:
        own = function_called(self.sources, step.at, call)
        if own is not None:
            self._of_function(*own, step.differs, found)
            given: list[ast.expr] = []
        else:
            for file, _, owner in self.sources.user_classes(last_name(call.func)):
                for method in owner.body:
                    if isinstance(method, _FUNCTIONS) and method.name in _MAKES_ITEMS:
                        self._of_function(file, method, step.differs, found)
            given = [*call.args, *(word.value for word in call.keywords)]
            if last_name(call.func) in (*names("filters_items"), *names("drops_items")):
                self._filter(step, given[:1], found)
            if isinstance(call.func, ast.Attribute):
                given.append(call.func.value)
        found.further += [_Step(step.at, each, step.differs) for each in given]

    def _filter(self, step: _Step, given: list[ast.expr], found: _Found) -> None:
        """What decides which items stay: a lambda, or what a function of the program's answers by."""
        for each in given:
            for answer in answers_of_given(self.sources, step.at.file, step.at.function, each):
                found.telling |= dict.fromkeys(answer.tests, step.differs)
            if isinstance(each, ast.Lambda) and _may_differ(names_in(each.body), text_of(each)):
                found.telling[Condition(text_of(each), step.at.file, each.lineno)] = step.differs

    def _of_function(
        self, file: str, function: ast.FunctionDef | ast.AsyncFunctionDef, differs: bool, found: _Found
    ) -> None:
        """Of a generator, what its items have to pass; of another one, what it returns."""
        if isinstance(function, ast.FunctionDef) and is_generator(function, function.body[0].lineno):
            found.telling |= dict.fromkeys(conditions_of_items(file, function), differs)
        for each in returned(file, function):
            if each.value is not None and dotted(each.value) != "self":
                self._set_by(each, "", differs, found)


def _chosen(found: dict[Condition, bool]) -> list[Condition]:
    """Those to which a value that differs leads; all, where none does."""
    return [each for each, differs in found.items() if differs] or list(found)


def _operands(value: ast.expr) -> Iterator[ast.expr]:
    return (each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr))


def _asks_presence(test: ast.expr) -> bool:
    """True for `skip`, `not skip`, `self.cache is None`: what decided it says more."""
    if isinstance(test, ast.UnaryOp):
        return _asks_presence(test.operand)
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Is | ast.IsNot) and bool(dotted(test.left))
    return bool(dotted(test))


def _may_differ(tested: tuple[str, ...], text: str) -> bool:
    """False for a test on the rank, on the round alone, on what all ranks are set up with, and on what kind of file an
    item is."""
    if any(map(is_rank_name, tested)) or tested == ("__name__",):
        return False
    if all(pattern("counts_rounds").search(each) for each in tested):
        return False
    of_kind = any(each.rpartition(".")[2] in names("asks_kind_of_file") for each in tested)
    return not of_kind and not pattern("same_everywhere").search(text)
