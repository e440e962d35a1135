"""Ranks wait for store keys, and who should have set them is known: each rank sets its own, and the store says whose
are missing; or those who went the other way set them, and are past it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import DEEPEST, SCANNED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.settings import Place, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, function_name, holds, last_name, text_of, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks, is_past_setting
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text

_NUMBER = re.compile(r"\d+$")
_ANY_NUMBER = re.compile(r"\d+")
_LONGEST_NUMBER = 8
"""Digits of a rank."""


@dataclass(frozen=True, slots=True)
class UnsetKey(Explanation):
    """The culprits have not set the keys with their numbers, for which others wait, and are past doing so."""

    missing: tuple[str, ...]
    there: tuple[str, ...]
    """Keys of the same name that are there."""
    waiting: tuple[int, ...]
    set_at: Frame
    """The line that sets such a key under the rank's own number."""


def unset_key(case: Case) -> Blame[UnsetKey] | None:
    """The blame of the ranks that left out setting their own key; None where the store or the source does not say whose
    a key is.

    Example: all ranks wait for step/0, step/1 and step/2, `store.set(f"step/{rank}", …)` sets them, and step/1 alone is
    missing → rank 1.
    """
    waiting = tuple(r for r, activity in sorted(case.activities.items()) if waits_for_a_key(activity))
    if case.job.store is None or not waiting:
        return None
    known = any(awaited_keys(case, rank) for rank in waiting)
    there, missing = (case.job.store.there, case.job.store.missing) if known else _one_incomplete(case, waiting)
    asked = {rank: set(missing).intersection(awaited_keys(case, rank) if known else missing) for rank in waiting}
    every = set().union(*asked.values())
    owners = {key: rank for key in every if (rank := number_of(key)) is not None and rank in case.seen}
    if len({stem_of(key) for key in every}) != 1 or owners.keys() != every:
        return None
    alike = tuple(sorted(key for key in there if stem_of(key) == stem_of(next(iter(every)))))
    # A key that only its own rank waits for is set by another: `store.get(f"task/{rank}")`.
    culprits = tuple(sorted({r for key, r in owners.items() if any(key in asked[w] for w in waiting if w != r)}))
    numbers = {number_of(key) for key in (*alike, *every)}
    set_at = own_setting(case.sources)
    if not alike or not culprits or not numbers <= set(case.ranks) or set_at is None:
        return None
    if not is_by_rank(case.sources, set_at):
        return None
    if any(not is_past_setting(case.activities[rank], case.sources) for rank in culprits):
        return None
    left_out = tuple(sorted(key for key, rank in owners.items() if rank in culprits))
    sure = f"the store has keys of this name for other ranks, and none for {ranks_text(culprits)}"
    whole = numbers >= set(case.ranks) - set(waiting)
    how = Confidence.LIKELY if whole and 2 * len(culprits) < len(case.ranks) else Confidence.POSSIBLE
    stuck = not free_ranks(case.activities)
    return Blame(UnsetKey(left_out, alike, waiting, set_at), culprits, proved=stuck, confidence=how, sure=sure)


def is_by_rank(sources: Sources, setting: Frame) -> bool:
    """True if the key that is set at that line is put together with the rank: `store.set("done/" + self.rank, …)`.

    A literal of the source is masked, with all that is put into it, and may hold the rank.
    """
    at = place_of(sources, setting.file, setting.line)
    calls = [n for n in walk(at.tree) if isinstance(n, ast.Call) and holds(n, setting.line)] if at else []
    keys = [call.args[0] for call in calls if last_name(call.func) in names("store_setter") and len(call.args) > 1]
    return at is not None and any(_names_the_rank(sources, at, key, DEEPEST) for key in keys)


def _names_the_rank(sources: Sources, at: Place, key: ast.expr, deep: int) -> bool:
    """True if the expression names the rank, or something that was put together with it."""
    parts = [each for each in walk(key) if isinstance(each, ast.Name | ast.Attribute)]
    if any(isinstance(each, ast.JoinedStr) for each in walk(key)) and not parts:
        return True
    if any(is_rank_name(dotted(each)) for each in parts) or pattern("rank_word").search(text_of(key)):
        return True
    steps = [step for each in parts for step in settings(sources, at, each)] if deep else []
    return any(_names_the_rank(sources, s.at, s.value, deep - 1) for s in steps if s.value is not None)


def awaited_keys(case: Case, rank: int) -> list[str]:
    """The keys that the rank waits for; [] without a probe."""
    journal = case.ranks[rank].journal
    return [key for wait in journal.store_waits for key in wait.keys] if journal is not None else []


def _one_incomplete(case: Case, waiting: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the keys that are there, those that are not) of the only name that some ranks have not set, where all have set
    others like it, or those who wait have set theirs and wait for those of all; nobody has told which are awaited.

    Example: of step/0/0, step/0/1 and step/1/0, with two ranks → (('step/1/0',), ('step/1/1',)).
    """
    keys = case.job.store.keys if case.job.store is not None else ()
    ranks, families = set(case.ranks), dict[str, set[int]]()
    for key in keys if len(keys) < SCANNED else ():
        number = number_of(key)
        if number is not None and not pattern("own_store_key").search(key):
            families.setdefault(stem_of(key), set()).add(number)
    complete = {_ANY_NUMBER.sub("0", stem) for stem, numbers in families.items() if numbers == ranks}
    found = [stem for stem, numbers in families.items() if numbers < ranks and _ANY_NUMBER.sub("0", stem) in complete]
    if not found and all(awaits_those_of_all(case, rank) for rank in waiting):
        found = [stem for stem, numbers in families.items() if set(waiting) <= numbers < ranks]
    if len(found) != 1:
        return (), ()
    there = families[found[0]]
    return tuple(f"{found[0]}{rank}" for rank in sorted(there)), tuple(f"{found[0]}{r}" for r in sorted(ranks - there))


def awaits_those_of_all(case: Case, rank: int) -> bool:
    """True if the keys that the rank's line waits for are put together in a loop over the ranks.

    Example: `keys = [f"agent/{r}" for r in ranks if r != self.rank]` and `store.wait(keys)`.
    """
    frame = next(iter(user_stack(case.activities[rank].stack)), None)
    at = place_of(case.sources, frame.file, frame.line) if frame is not None else None
    if at is None or frame is None:
        return False
    if _goes_over_ranks(at.tree, frame.line):
        return True
    calls = [n for n in walk(at.function) if isinstance(n, ast.Call) and holds(n, frame.line)]
    awaited = [each for call in calls for each in call.args]
    awaited += [s.value for each in awaited for s in settings(case.sources, at, each) if s.value is not None]
    parts = (part for each in awaited for part in walk(each) if isinstance(part, ast.comprehension))
    return any(_is_over_ranks(part.target, part.iter) for part in parts)


def stem_of(key: str) -> str:
    """The key without the number at its end: shards/0/ of shards/0/3."""
    return _NUMBER.sub("", key)


def number_of(key: str) -> int | None:
    """The rank that a key may belong to: 3 of shards/0/3."""
    number = _NUMBER.search(key)
    return int(number[0]) if number is not None and len(number[0]) < _LONGEST_NUMBER else None


def own_setting(sources: Sources) -> Frame | None:
    """The only line that sets keys whose names are put together, where every rank sets its own there.

    In a loop over ranks one sets the keys of all: `for r in range(world): ⏎ store.set(f"go/{r}", "1")`.
    """
    found: dict[Frame, bool] = {}
    for file, tree in sources.user_trees():
        for call in (node for node in walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1):
            setter = isinstance(call.func, ast.Attribute) and call.func.attr in names("store_setter")
            if setter and not isinstance(call.args[0], ast.Constant):
                where = Frame(file, call.lineno, function_name(tree, call.lineno))
                found[where] = found.get(where, True) and not _goes_over_ranks(tree, call.lineno)
    lines = {(frame.file, frame.line) for frame in found}
    only: Frame | None = next(iter(found)) if len(lines) == 1 and all(found.values()) else None
    trees = [tree for file in sources.files() for _, tree in sources.trees(file)] if only is not None else []
    called = [(tree, line) for tree in trees if only is not None for line in calls_of(tree, only.function)]
    return None if any(_goes_over_ranks(tree, line) for tree, line in called) else only


def _goes_over_ranks(tree: ast.AST, line: int) -> bool:
    function = enclosing_function(tree, line)
    loops = (node for node in walk(function) if isinstance(node, ast.For) and holds(node, line))
    return any(_is_over_ranks(loop.target, loop.iter) for loop in loops)


def _is_over_ranks(target: ast.expr, items: ast.expr) -> bool:
    return pattern("all_ranks").search(f"{text_of(target)} in {text_of(items)}") is not None
