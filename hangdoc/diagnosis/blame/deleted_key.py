"""Ranks wait for a store key that others have got before: one of these has deleted it.

Example: every rank but 0 gets mail/1 in fetch(), and rank 1, which alone runs the `store.delete_key(…)` after it, has
gone on to the next backward pass; ranks 2 and 3 come to fetch() when the key is gone → rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line
from hangdoc.diagnosis.blame.left_lock import has_passed
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.source.evaluate import test_at, truth
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.syntax import function_name
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks, is_past_setting
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text

_DEEPEST = 4
"""Functions that call each other, followed this far, as two may call each other; chosen by hand."""


@dataclass(frozen=True, slots=True)
class DeletedKey(Explanation):
    """The culprits alone have run the line that deletes keys, and are past the wait of the others."""

    waiting: tuple[int, ...]
    deleted_at: Frame


def deleted_key(case: Case) -> Blame[DeletedKey] | None:
    """The blame of those ranks; None where no other rank has got the key, or neither the counters nor the values of
    what the condition around the line tests tell who has run it."""
    waiting = tuple(r for r, activity in sorted(case.activities.items()) if waits_for_a_key(activity))
    if not waiting or case.hidden or free_ranks(case.activities):
        return None
    if not at_one_line(case, waiting):
        return None
    others = tuple(sorted(case.seen - set(waiting)))
    got = tuple(rank for rank in others if _has_got(case, rank, waiting[0]))
    places = {(a.kind, site_of(a.stack)): a for rank in others if (a := case.activities[rank])}
    if not got or not all(is_past_setting(activity, case.sources) for activity in places.values()):
        return None
    for at in _deleting(case):
        ran = _runs(case, (*others, *waiting), at)
        mine = tuple(rank for rank in others if ran[rank])
        if mine and all(ran[rank] is False for rank in waiting):
            sure = f"{ranks_text(got)} got the key there, and {ranks_text(mine)} alone ran the line that deletes one"
            found = DeletedKey(waiting, at)
            return Blame(found, mine, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None


def _runs(case: Case, ranks: tuple[int, ...], at: Frame, deepest: int = _DEEPEST) -> dict[int, bool | None]:
    """Rank → whether it has run the line, by its counters, or else by the values that the condition around it tests.

    Example: `if self.rank == self.cleaner: ⏎ store.delete_key(key)`, with self.rank = 1 and self.cleaner = 1 → True.
    """
    ran = {rank: case.table.ran(rank, at.file, at.line) for rank in ranks}
    unknown = tuple(rank for rank, has in ran.items() if has is None)
    if not unknown:
        return ran
    tree = case.sources.function(at.file, at.line)
    around = [guard for guard in guards(tree, at.line) if guard.kind == "if"] if tree is not None else []
    if tree is None or not around:
        return ran | (_runs_its_call(case, unknown, at, deepest - 1) if deepest else {})
    inner = around[-1]
    test = test_at(tree, inner.line)
    if test is None:
        return ran
    known = {name: [each for _, each in case.values.named(name.rpartition(".")[2])] for name in inner.names}
    for rank in unknown:
        seen = {name: {each[rank] for each in per_rank if rank in each} for name, per_rank in known.items()}
        goes = truth(test, {name: next(iter(values)) for name, values in seen.items() if len(values) == 1})
        ran[rank] = None if goes is None else goes == inner.taken
    return ran


def _runs_its_call(case: Case, ranks: tuple[int, ...], at: Frame, deepest: int) -> dict[int, bool | None]:
    """The same of the only call of the function that holds the line."""
    calls = case.sources.user_calls(at.function)
    if len(calls) != 1 or (calls[0].file, calls[0].call.lineno) == (at.file, at.line):
        return {}
    caller = getattr(calls[0].function, "name", "<module>")
    return _runs(case, ranks, Frame(calls[0].file, calls[0].call.lineno, caller), deepest)


def _has_got(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank has been at the line of the wait, and is ahead of who is still there."""
    at = next(iter(user_stack(case.activities[waiting].stack)), None)
    if at is None or case.table.ran(rank, at.file, at.line) is False:
        return False
    return has_passed(case, rank, (waiting,))


def _deleting(case: Case) -> list[Frame]:
    """The user's lines that delete a key."""
    return list(
        dict.fromkeys(
            Frame(file, line, function_name(tree, line))
            for file, tree in case.sources.user_trees()
            for name in names("deletes_key")
            for line in calls_of(tree, name)
        )
    )
