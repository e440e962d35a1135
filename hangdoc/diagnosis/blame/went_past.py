"""Ranks poll for what another one was to do for them, with a method of the same object or a line on the same file, key
or memory, and one rank went on past it.

Examples: ranks 3 and 4 poll in Turn.wait_for(), and rank 2 alone has run the `return` of `if not rows: ⏎ return` before
`self.turn.give_to(rank + 1)` → rank 2. Ranks 0, 2 and 3 poll in Gate.enter(), rank 1 alone is past it, and `except
OSError:` leads past `gate.leave()` → rank 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.nobody_works import nobody_works
from hangdoc.diagnosis.blame.shared_by_processes import POLLING, is_past_them
from hangdoc.diagnosis.blame.unmade_file import ways_past
from hangdoc.diagnosis.bounds import COMPARED, OFTEN, TRIED
from hangdoc.diagnosis.condition.elsewhere.ran_alone import RanAlone, ran_alone
from hangdoc.diagnosis.condition.elsewhere.written import written_under
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.lets_on import (
    functions_that_let_on,
    lines_in,
    skipped_lines,
    what_lets_on,
    what_sets_keys,
)
from hangdoc.diagnosis.source.own_names import own_name_polled
from hangdoc.diagnosis.source.polls import what_ends_polling
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import innermost_loop, last_name, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.missing_threads import MissingThread, missing_threads
from hangdoc.model.kinds import COMMUNICATING, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class WentPast(Explanation):
    """``waiting`` poll for what one of ``lines`` changes; the culprits went past these, by ``left`` or else perhaps by
    one of ``ways``."""

    waiting: tuple[int, ...]
    lines: tuple[Frame, ...]
    left: RanAlone | None = None
    ways: tuple[Condition, ...] = ()
    fewer: tuple[str, dict[int, str]] | None = None
    """(what counts how often a line was come to, rank → value), of which the culprit alone has fewer."""
    lost: MissingThread | None = None
    """The thread that came to one of the lines again and again, which the culprit alone has not."""


def went_past(case: Case) -> Blame[WentPast] | None:
    """The blame of the only rank that has run, or written, what leads past such a line, else of the few that are past
    where most others poll; None where a rank does anything but poll, or wait for the ranks."""
    waiting = tuple(rank for rank in sorted(case.activities) if _asks(case, rank))
    others = tuple(sorted(r for r in set(case.activities) - set(waiting) if case.activities[r].kind in COMMUNICATING))
    if (
        not waiting
        or case.hidden
        or not all(rank in waiting or _waits_for_ranks(case, rank) for rank in case.activities)
    ):
        return None
    places = [where for rank in _one_of_each(case, waiting) if (where := case.activities[rank].where) is not None]
    if any(own_name_polled(case.sources, where) is not None for where in places):
        return None  # it was done, for what each process names for itself
    lines = list(dict.fromkeys(each for rank in _one_of_each(case, waiting) for each in _lets_on(case, rank)))
    if not lines or len(case.activities) < 3:
        return None
    functions = functions_that_let_on(case.sources, lines)
    found = _by_lost_thread(case, waiting, lines, functions) or _by_counters(case, waiting, lines, functions)
    found = found or _by_output(case, waiting, lines, functions) or _by_counts(case, waiting, lines, functions)
    found = found or _by_place(case, waiting, others, lines, functions)
    found = found or _by_makers(case, waiting, others, lines, functions)
    return found if found is None or found.culprits != waiting else None  # nobody keeps itself waiting so


def _waits_for_ranks(case: Case, rank: int) -> bool:
    """True if the rank is in a call of the group, or waits in any other way for one that is seen, as for an answer."""
    return case.activities[rank].kind in COMMUNICATING or bool(case.graph.on(rank))


def _asks(case: Case, rank: int) -> bool:
    """True if the rank asks again and again, or waits for a key of a store."""
    activity = case.activities[rank]
    where = next(iter(user_stack(activity.stack)), None)
    if waits_for_a_key(activity) or where is None:
        return where is not None
    tree = case.sources.function(where.file, where.line) if activity.kind in POLLING else None
    loop = innermost_loop(tree, where.line)
    return isinstance(loop, ast.While) and case.going_round(activity) is None


def _one_of_each(case: Case, waiting: tuple[int, ...]) -> list[int]:
    """One rank for each line at which they poll."""
    return list({case.activities[rank].where: rank for rank in reversed(waiting)}.values())


def _lets_on(case: Case, rank: int) -> list[Frame]:
    activity = case.activities[rank]
    if waits_for_a_key(activity):
        return what_sets_keys(case.sources)
    ending = what_ends_polling(case.sources, activity.stack)
    return what_lets_on(case.sources, activity.stack) or ([ending.at] if ending is not None else [])


def _by_lost_thread(
    case: Case, waiting: tuple[int, ...], lines: list[Frame], functions: set[str]
) -> Blame[WentPast] | None:
    """The blame of the only rank without a thread that all others have, and that comes to such a line on these."""
    if len(case.activities) > COMPARED:
        return None
    by_line = {(each.file, each.line) for each in lines}
    lost = [each for rank in sorted(case.activities) for each in missing_threads(case.ranks, rank)]
    lost = [e for e in lost if plain(e.where.function) in functions or (e.where.file, e.where.line) in by_line]
    if len(lost) != 1:
        return None
    sure = f"rank {lost[0].rank} alone has no thread that lets the others go on"
    explained = WentPast(waiting, tuple(lines), lost=lost[0])
    return _blame(case, explained, (lost[0].rank,), sure)


def _by_counters(
    case: Case, waiting: tuple[int, ...], lines: list[Frame], functions: set[str]
) -> Blame[WentPast] | None:
    everybody = tuple(sorted(case.activities))
    alone = case.table.ran_what_no_other_has(everybody)
    past: dict[int, RanAlone] = {}
    for rank in alone if len(alone) <= TRIED else ():
        left = [each for each in ran_alone(case, ((rank,), tuple(r for r in everybody if r != rank))) if not each.side]
        led = [each for each in left if _skips(case, each.file, each.line, lines, functions)]
        if led:
            past[rank] = led[0]
    if len(past) != 1:
        return None
    ((rank, left_by),) = past.items()
    sure = f"rank {rank} alone has gone past the line that lets the others go on"
    return _blame(case, WentPast(waiting, tuple(lines), left_by), (rank,), sure)


def _by_output(case: Case, waiting: tuple[int, ...], lines: list[Frame], functions: set[str]) -> Blame[WentPast] | None:
    """The same by what one rank alone has written: `except KeyError as e: ⏎ print(f"rank {rank} keeps {e}")`."""
    past: dict[int, Condition] = {}
    writers = sorted({line.rank for line in case.job.written if line.rank is not None and line.rank in case.activities})
    for rank in writers if len(writers) <= TRIED else ():
        others = tuple(r for r in sorted(case.activities) if r != rank)
        stacks = [case.activities[rank].stack]
        for each in written_under(case.sources, case.job.written, stacks, (rank,), others):
            at = [line for file, line in each.line.places if file == each.condition.file]
            if any(_skips(case, each.condition.file, line, lines, functions) for line in at):
                past.setdefault(rank, each.condition)
    if len(past) != 1:
        return None
    ((rank, by),) = past.items()
    sure = f"rank {rank} alone has written what leads past the line that lets the others go on"
    return _blame(case, WentPast(waiting, tuple(lines), ways=(by,)), (rank,), sure)


def _by_counts(case: Case, waiting: tuple[int, ...], lines: list[Frame], functions: set[str]) -> Blame[WentPast] | None:
    """The blame of the only rank that has counted fewer than all others, who have counted alike, where the function of
    such a line counts how often it runs.

    Example: `self.store.set(f"box/{right}/{self.sent}", text) ⏎ self.sent += 1`, and sent is 9 on rank 1 and 10 on all
    others → rank 1.
    """
    counted = {
        last_name(node.target)
        for each in lines
        if (here := place_of(case.sources, each.file, each.line)) is not None
        for node in walk(here.function)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
    }
    everybody = tuple(sorted(case.activities))
    odd: dict[int, tuple[str, dict[int, str]]] = {}
    for name, values in _numbers(case, everybody) if counted else ():
        by_value: dict[int, list[int]] = {}
        for rank, value in values.items():
            by_value.setdefault(int(value), []).append(rank)
        if name in counted and len(values) == len(everybody) and len(by_value) == 2:
            few = by_value[min(by_value)]
            if len(few) == 1:
                odd.setdefault(few[0], (name, values))
    if len(odd) != 1:
        return None
    ((rank, fewer),) = odd.items()
    sure = f"rank {rank} alone has fewer of what the line counts that lets the others go on"
    explained = WentPast(waiting, tuple(lines), ways=ways_past_all(case.sources, lines, functions), fewer=fewer)
    return _blame(case, explained, (rank,), sure)


def _numbers(case: Case, ranks: tuple[int, ...]) -> Iterator[tuple[str, dict[int, str]]]:
    """(name, rank → value) of each count in the program's objects; of an object that a rank has several of, none."""
    seen = case.values.left(ranks)
    for (_, name), per_rank in seen.items():
        if all(len(each) == 1 and each[0].isdecimal() for each in per_rank.values()):
            yield name, {rank: each[0] for rank, each in per_rank.items()}
    for _, name, values in case.values.numbers() if not seen else ():
        if all(value.isdecimal() for value in values.values()):
            yield name, values


def ways_past_all(sources: Sources, lines: list[Frame], functions: set[str]) -> tuple[Condition, ...]:
    """What can lead past these lines, or past a call of a function that comes to one; tests of the rank go alike."""
    reached = (*lines, *(each.at for each in sources.user_calls(*functions)))
    found = (way for at in dict.fromkeys(reached) for way in ways_past(sources, at))
    return tuple(dict.fromkeys(found))


def _by_place(
    case: Case, waiting: tuple[int, ...], others: tuple[int, ...], lines: list[Frame], functions: set[str]
) -> Blame[WentPast] | None:
    """The blame of the few that are past all that the most others are in; these ask, or wait for an answer of one that
    asks."""
    inside = tuple(rank for rank in sorted(case.activities) if rank not in others)
    ways = ways_past_all(case.sources, lines, functions) if 0 < len(others) < len(inside) else ()
    if not ways or not all(is_past_some(case, rank, inside) for rank in others):
        return None
    alone = f"{ranks_text(others)} alone {'is' if len(others) == 1 else 'are'}"
    sure = f"{ranks_text(inside)} are there, and {alone} past that"
    found = _blame(case, WentPast(waiting, tuple(lines), ways=ways), others, sure)
    if len(inside) < OFTEN and all(waits_for_a_key(case.activities[rank]) for rank in waiting):
        return replace(found, alternatives=(inside,), confidence=Confidence.POSSIBLE)
    return found


def _by_makers(
    case: Case, waiting: tuple[int, ...], others: tuple[int, ...], lines: list[Frame], functions: set[str]
) -> Blame[WentPast] | None:
    """The blame of the only rank that has ever come to such a line, and waits elsewhere now for those that ask.

    Example: rank 2 polls for the file of epoch 3, rank 0 alone has run the line of publish() that makes those of the
    epochs before, and `if loss < self.best:` leads past it → rank 0.
    """
    came = {rank: [case.table.ran(rank, each.file, each.line) for each in lines] for rank in sorted(case.activities)}
    if any(each is None for answers in came.values() for each in answers):
        return None
    makers = tuple(rank for rank, answers in came.items() if any(answers))
    ways = ways_past_all(case.sources, lines, functions) if len(makers) == 1 and makers[0] in others else ()
    if not ways or not case.graph.on(makers[0]) & set(waiting):
        return None
    sure = f"{ranks_text(makers)} alone has ever come to the line that lets the others go on"
    return _blame(case, WentPast(waiting, tuple(lines), ways=ways), makers, sure)


def _blame(case: Case, found: WentPast, ranks: tuple[int, ...], sure: str) -> Blame[WentPast]:
    """Where all that wait do so for a key, nobody may be left who would set it. The culprits may wait there, too."""
    keys = all(waits_for_a_key(case.activities[rank]) for rank in found.waiting)
    others = tuple(rank for rank in found.waiting if rank not in ranks)
    return Blame(
        replace(found, waiting=others or found.waiting),
        ranks,
        proved=keys and nobody_works(case),
        confidence=Confidence.LIKELY,
        sure=sure,
    )


def is_past_some(case: Case, rank: int, waiting: tuple[int, ...]) -> bool:
    """True if the rank is past the line of one of those that wait, and waits for that one."""
    return any(is_past_them(case, rank, other) for other in _one_of_each(case, waiting))


def _skips(case: Case, file: str, line: int, lines: list[Frame], functions: set[str]) -> bool:
    """True if who has run the line did not come to one that lets others go on, in the line's function, or, where an
    exception was caught, in what was tried."""
    here = place_of(case.sources, file, line)
    if here is None:
        return False
    return bool(skipped_lines(here.tree, line, lines_in(here.function, file, lines, functions)))
