"""What a library was given at a line of the user's that all ranks are at, where that differs between the sides.

Example: rank 0 found a checkpoint, the others none, and the library's loop begins at another round there,

    80  result = self.trainer.train(resume_from_checkpoint=last)

→ `resume_from_checkpoint=last`, with last = '…' on rank 0, None on ranks 1 and 2.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.syntax import dotted, holds, walk
from hangdoc.diagnosis.source.values import sides_differ
from hangdoc.model.message import Condition, Joined, Message, Values

_MOST = 2
"""Arguments; of more, it is the ranks' whole set-up that differs. Chosen by hand."""
_CHOICES = frozenset({"None", "True", "False"})


def given_otherwise(case: Case, blame: Blame[Explanation]) -> Message:
    """'`resume_from_checkpoint=last` (train.py:80) differs: '…' on rank 0, None on ranks 1 and 2'; '' where nothing of
    that kind was seen to differ."""
    gap = blame.found.gap if isinstance(blame.found, Diverged) else None
    if gap is None or gap.mine is None or gap.theirs is None:
        return ""
    mine, theirs = gap.mine.stack, gap.theirs.stack
    at = next(iter(user_stack(mine)), None)
    other = next(iter(user_stack(theirs)), None)
    if at is None or other is None or not (is_library(mine[0]) and is_library(theirs[0])):
        return ""
    if (at.file, at.line, at.function) != (other.file, other.line, other.function):
        return ""
    ranks = blame.culprits, others_of(case, blame)
    there = case.values.lines(at.file, at.function)
    tree = case.sources.function(at.file, at.line)
    if tree is None or any(there.get(rank) != at.line for side in ranks for rank in side):
        return ""  # the values are those of now
    said: list[Message] = []
    for text, word, name in _arguments(tree, at.line):
        values = case.values.of(at.file, at.function, name)
        if sides_differ(values, ranks) and _decides(word, name, set(values.values())):
            said.append([Condition(text, at.file, at.line), " differs: ", Values(values)])
    return Joined(said, ", and ") if 0 < len(said) <= _MOST else ""


def _arguments(tree: ast.AST, line: int) -> Iterator[tuple[str, str, str]]:
    """(the argument as it is written, its keyword, the name of what is given) of the calls at the line."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and holds(node, line):
            given = [*((None, each) for each in node.args), *((word.arg, word.value) for word in node.keywords)]
            for word, value in given:
                if name := dotted(value):
                    yield (f"{word}={name}" if word else name), word or "", name


def _decides(word: str, name: str, values: set[str]) -> bool:
    """True for what is there on one side alone, a choice, or a number of rounds: any other value may well be the rank's
    own, as a seed, or a part of the data, is."""
    if is_rank_name(name):
        return False
    of_rounds = any(pattern("counts_rounds").search(each.rpartition(".")[2]) for each in (word, name) if each)
    return not values.isdisjoint(_CHOICES) or (of_rounds and all(each.isdecimal() for each in values))
