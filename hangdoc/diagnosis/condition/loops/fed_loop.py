"""What the user's code gives a library's loop, by which it ends: the items it goes over, the score that stops it, and
a criterion that it asks in each round.

Example: `trainer.train()` ran fewer rounds on one rank, as its sampler left a batch out there,

    47  def __iter__(self):
    48      for i in range(len(self.lengths)):
    49          if tokens + self.lengths[i] > self.limit:
    50              yield rows

→ `if tokens + self.lengths[i] > self.limit:`. With EarlyStopping(score_function=self.score) → by what score() answers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.condition.elsewhere.answers import answers_of_given, answers_of_method
from hangdoc.diagnosis.condition.loops.iterators import conditions_of_items
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, names_in, text_of, walk
from hangdoc.model.message import Condition

_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""
_ANY = re.compile("")


def of_score(sources: Sources) -> list[Condition]:
    """The tests by which the user's function answers whose score stops a library's loop; [] where nothing stops it by a
    score, and where there are too many to tell."""
    if not sources.user_calls(*names("stops_by_score")):
        return []
    found: dict[Condition, None] = {}
    for calls in sources.user_calls_like(_ANY):
        for word in calls.call.keywords:
            if word.arg in names("gives_score"):
                given = answers_of_given(sources, calls.file, calls.function, word.value)
                found |= dict.fromkeys(test for answer in given for test in answer.tests)
    return list(found) if len(found) <= _MOST else []


def of_stopper(sources: Sources) -> list[Condition]:
    """What the program makes to stop a library's loop by a score, which each rank may see otherwise:
    `EarlyStoppingCallback(early_stopping_patience=3)`; [] where there is none, and where there are too many to tell."""
    made = sources.user_calls(*names("stops_by_score"))
    found = dict.fromkeys(Condition(text_of(each.call), each.file, each.call.lineno) for each in made)
    return list(found) if len(found) <= _MOST else []


def of_answer(sources: Sources) -> list[Condition]:
    """The tests by which the user's own criterion answers that a library asks in each round of its loop; [] where there
    is none, and where there are too many to tell.

    Example: `class Budget(StoppingCriteria)`, whose `__call__` returns `ids.shape[1] >= self.limit` → that test.
    """
    found: dict[Condition, None] = {}
    for file, tree in sources.user_trees():
        for owner in walk(tree):
            bases = map(last_name, owner.bases) if isinstance(owner, ast.ClassDef) else ()
            if isinstance(owner, ast.ClassDef) and not set(names("stops_by_answer")).isdisjoint(bases):
                found |= dict.fromkeys(answers_of_method(sources, file, owner, "__call__"))
    return list(found) if len(found) <= _MOST else []


def of_items(sources: Sources) -> list[Condition]:
    """The conditions by which the user's own sampler, data set or loader has fewer items, or ends; [] where there are
    none, or too many to tell. A condition on the rank is none of them: it shares the items out."""
    found = dict.fromkeys([*_of_iterators(sources), *_of_filters(sources)])
    return list(found) if len(found) <= _MOST else []


def _of_iterators(sources: Sources) -> Iterator[Condition]:
    """Of `__iter__` and the like, in the program's classes."""
    for name in names("makes_items"):
        for file, function in sources.user_functions(name):
            if function.args.args and function.args.args[0].arg == "self":
                yield from conditions_of_items(file, function)


def _of_filters(sources: Sources) -> Iterator[Condition]:
    """Of `dataset.filter(keep)`: by what keep() answers, or the lambda."""
    for each in sources.user_calls(*names("filters_items")):
        for given in each.call.args[:1] if isinstance(each.call.func, ast.Attribute) else ():
            for answer in answers_of_given(sources, each.file, each.function, given):
                yield from answer.tests
            if isinstance(given, ast.Lambda) and not any(map(is_rank_name, names_in(given.body))):
                yield Condition(text_of(given), each.file, given.lineno)
