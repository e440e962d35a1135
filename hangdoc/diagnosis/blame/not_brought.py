"""A rank waits for what another was to bring by a way of the program's own, and one rank alone went past the line.

Example: rank 0 is in `listener.accept()`, once for each other rank; the others wait for it in an all_reduce. Rank 2
alone has run the `return` of `if not rows: ⏎ return 0 ⏎ Client(address)` → rank 2.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from hangdoc.diagnosis.blame.unmade_file import ways_past
from hangdoc.diagnosis.blame.went_past import is_of_rank, is_past_some
from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.evaluate import test_at, truth
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.loops import tries_again
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, walk
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_QUEUED = frozenset({ActivityKind.PIPE, ActivityKind.LOCK, ActivityKind.IO})
"""What a rank does that takes from a queue of processes, or of a Manager."""
_MOST_ALONE = 8
"""Ranks of which each has run what no other has, and one alone may be to blame; of more, each goes its own way. Chosen
by hand."""


class What(Enum):
    """What a rank waits for."""

    CONNECTION = auto()
    ITEM = auto()
    """Of a queue that processes share."""
    LOCK = auto()
    """One of the program's own, which it tries to take again and again."""


@dataclass(frozen=True, slots=True)
class NotBrought(Explanation):
    """The ranks ``waiting`` wait for ``what`` another rank brings, or lets go, at ``places``; the culprit alone went
    past these lines, by ``left_by``."""

    waiting: tuple[int, ...]
    places: tuple[Frame, ...]
    left_by: Condition
    what: What


def not_brought(case: Case) -> Blame[NotBrought] | None:
    """The blame of the only rank that went past the line; None where the counters of lines do not tell, or a rank does
    anything but wait for the one that waits."""
    roots = tuple(sorted(case.graph.roots))
    if not roots or case.hidden or len({_line(case, rank) for rank in roots}) != 1:
        return None
    others = tuple(sorted(set(case.activities) - set(roots)))
    elsewhere = tuple(r for r in others if case.activities[r].kind == ActivityKind.IN_COLLECTIVE)
    if len(case.activities) < 3 or not all(r in elsewhere or case.graph.on(r) <= set(roots) for r in others):
        return None  # who is no root waits for one: here for the answer
    places, what = _brought_at(case, roots[0])
    if what is not What.LOCK and len(roots) > 1:
        return None
    # Who tries to take the lock has taken it before; who accepts connections makes none.
    beside = tuple(sorted(case.activities)) if what is What.LOCK else others
    past = _past_by_counters(case, others, beside, places) or _past_by_values(case, others, places)
    past = past or _past_by_place(case, roots, elsewhere, others, places)
    if len(past) != 1:
        return None
    ((rank, left_by),) = past.items()
    found = NotBrought(roots, places, left_by, what)
    sure = f"rank {rank} alone has gone past the line that brings it, by what it has run, its values or where it is"
    return Blame(found, (rank,), proved=False, confidence=Confidence.LIKELY, sure=sure)


def _line(case: Case, rank: int) -> tuple[str, int] | None:
    where = case.activities[rank].where
    return (where.file, where.line) if where is not None else None


def _past_by_counters(
    case: Case, ranks: tuple[int, ...], beside: tuple[int, ...], places: tuple[Frame, ...]
) -> dict[int, Condition]:
    """Rank → the condition by which it went past these lines, of those that alone have run something under it."""
    past: dict[int, Condition] = {}
    alone = set(case.table.ran_what_no_other_has(beside)).intersection(ranks) if places else set()
    for rank in sorted(alone) if len(alone) <= _MOST_ALONE else ():
        left = ran_alone(case, ((rank,), tuple(r for r in beside if r != rank)))
        mine = [each for each in left if each.side == 0 and _leads_past(case.sources, each, places)]
        if len(mine) == 1:
            past[rank] = Condition(mine[0].guard.condition, mine[0].file, mine[0].guard.line)
    return past


def _past_by_place(
    case: Case, roots: tuple[int, ...], elsewhere: tuple[int, ...], others: tuple[int, ...], places: tuple[Frame, ...]
) -> dict[int, Condition]:
    """The same of the only rank that is past it, where all others wait for the answer of the one that waits."""
    if len(elsewhere) != 1 or len(others) < 2 or not is_past_some(case, elsewhere[0], roots):
        return {}
    ways = [way for at in places for way in ways_past(case.sources, at) if not is_of_rank(way)]
    return {elsewhere[0]: ways[-1]} if ways else {}


def _past_by_values(case: Case, ranks: tuple[int, ...], places: tuple[Frame, ...]) -> dict[int, Condition]:
    """The same by the values that a condition has now: of names of a function that all the ranks are in, or that it has
    given to the function of the line. Empty where a rank's values do not tell.

    Example: `send_rows(address, rank, rows)` in main(), where rows = [] on rank 2, and `if not rows: ⏎ return 0` there.
    """
    for at in places if len(places) == 1 else ():
        for guard, names_there, frame in _tests_before(case, at):
            went: dict[int, bool | None] = {}
            for rank in ranks:
                own = {n: case.values.of(frame.file, frame.function, there).get(rank, "") for n, there in names_there}
                true = truth(guard.test, own) if guard.test is not None else None
                went[rank] = None if true is None else true == guard.taken
            if None not in went.values() and False in went.values():
                return {r: Condition(guard.condition, at.file, guard.line) for r, came in went.items() if not came}
    return {}


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition before a line; ``taken``: the truth by which the line is reached."""

    condition: str
    line: int
    taken: bool
    test: ast.expr | None


def _tests_before(case: Case, at: Frame) -> Iterator[tuple[_Test, tuple[tuple[str, str], ...], Frame]]:
    """(a condition in the function of the line, its names with those that the caller has for them, the caller's frame
    on the ranks' stacks)."""
    tree = case.sources.function(at.file, at.line)
    function = enclosing_function(tree, at.line) if tree is not None else None
    if tree is None or not isinstance(function, ast.FunctionDef):
        return
    parameters = [each.arg for each in function.args.args]
    for call in case.sources.user_calls(function.name):
        caller = call.at
        method = isinstance(call.call.func, ast.Attribute) and parameters[:1] == ["self"]
        given = dict(zip(parameters[1 if method else 0 :], map(dotted, call.call.args), strict=False))
        given |= {word.arg: dotted(word.value) for word in call.call.keywords if word.arg}
        for guard in guards(tree, at.line):
            known = tuple((name, given[name]) for name in guard.names if given.get(name))
            if guard.kind in CONDITIONS and known and len(known) == len(guard.names):
                yield _Test(guard.condition, guard.line, guard.taken, test_at(tree, guard.line)), known, caller


def _brought_at(case: Case, rank: int) -> tuple[tuple[Frame, ...], What]:
    """(the lines that bring, or let go, what the rank waits for; what that is)."""
    activity, below = case.activities[rank], below_user(case.activities[rank].stack)
    if activity.where is None:
        return (), What.ITEM
    if activity.kind == ActivityKind.SLEEPING:
        return tuple(_let_go_at(case, activity.where)), What.LOCK
    method = plain(below[-1].function) if below else ""
    if method in names("takes_connection"):
        return tuple(each.at for each in case.sources.user_calls(*names("makes_connection"))), What.CONNECTION
    if method == "get" and activity.kind in _QUEUED and below[-1].file.endswith(names("shared_queue_file")):
        name = receiver_of(activity.where, method, case.sources)
        return tuple(places_of_methods(name, ("put", "put_nowait"), case.sources)) if name else (), What.ITEM
    return (), What.ITEM


def _let_go_at(case: Case, where: Frame) -> Iterator[Frame]:
    """The lines that let the lock go whose class tries, in a loop with a sleep, to take it at the line.

    Example: `while not self.store_takes(): ⏎ time.sleep(1)` in StoreLock.acquire(), which has a release() → the lines
    that call that.
    """
    owner, _, taking = where.function.rpartition(".")
    if not owner or plain(taking) not in names("takes_lock"):
        return
    for _, _, node in case.sources.user_classes(owner.rpartition(".")[2]):
        own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        for method in sorted(own & set(names("lets_lock_go"))):
            yield from (each.at for each in case.sources.user_calls(method))


def _leads_past(sources: Sources, left: LeftBehind, places: tuple[Frame, ...]) -> bool:
    """True if the condition is in the function of such a line, or in one that calls this function; False for a handler
    of exceptions after which it tries again."""
    around = sources.function(left.file, left.line)
    tried = [n for n in walk(around) if isinstance(n, ast.Try)] if around is not None else []
    tried = [n for n in tried if any(holds(handler, left.line) for handler in n.handlers)]
    if around is not None and not left.jumps and any(tries_again(around, each.lineno) for each in tried):
        return False
    if any((left.file, left.function) == (at.file, at.function) for at in places):
        return True
    tree = sources.function(left.file, left.line)
    function = enclosing_function(tree, left.line) if tree is not None else None
    return function is not None and any(calls_of(function, at.function) for at in places)
