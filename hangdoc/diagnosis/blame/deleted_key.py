"""Ranks wait for a store key that others have got before: one of these has deleted it.

Example: every rank but 0 gets mail/1 in fetch(), and rank 1, which alone runs the `store.delete_key(…)` after it, has
gone on to the next backward pass; ranks 2 and 3 come to fetch() when the key is gone → rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.condition.stack_comparison import in_one_loop, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import lines_of, site_of, user_stack
from hangdoc.diagnosis.source.evaluate import test_at, truth
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.syntax import function_name
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks, is_past_setting
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


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
    if len({lines_of(site_of(case.activities[rank].stack)) for rank in waiting}) > 1:
        return None
    others = tuple(sorted(case.seen - set(waiting)))
    got = tuple(rank for rank in others if _has_got(case, rank, waiting[0]))
    if not got or not all(is_past_setting(case.activities[rank], case.sources) for rank in others):
        return None
    for at in _deleting(case):
        mine = tuple(rank for rank in others if _runs(case, rank, at))
        if mine and all(_runs(case, rank, at) is False for rank in waiting):
            sure = f"{ranks_text(got)} got the key there, and {ranks_text(mine)} alone ran the line that deletes one"
            found = DeletedKey(waiting, at)
            return Blame(found, mine, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None


def _runs(case: Case, rank: int, at: Frame) -> bool | None:
    """Whether the rank has run the line, by its counters, or else by the values that the condition around it tests."""
    ran = case.ran.has(rank, at.file, at.line)
    tree = case.sources.function(at.file, at.line)
    around = [guard for guard in guards(tree, at.line) if guard.kind == "if"] if tree is not None else []
    if ran is not None:
        return ran
    if not around:
        return _runs_its_call(case, rank, at)
    inner = around[-1]
    test = test_at(tree, inner.line)
    values: dict[str, str] = {}
    for name in inner.names:
        seen = {per_rank[rank] for _, per_rank in case.values.named(name.rpartition(".")[2]) if rank in per_rank}
        values |= {name: next(iter(seen))} if len(seen) == 1 else {}
    goes = truth(test, values) if test is not None else None
    return goes if goes is None else goes == inner.taken


def _runs_its_call(case: Case, rank: int, at: Frame) -> bool | None:
    """The same of the only call of the function that holds the line."""
    calls = case.sources.user_calls(at.function)
    if len(calls) != 1 or (calls[0].file, calls[0].call.lineno) == (at.file, at.line):
        return None
    caller = getattr(calls[0].function, "name", "<module>")
    return _runs(case, rank, Frame(calls[0].file, calls[0].call.lineno, caller)) if caller != at.function else None


def _has_got(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank has been at the line of the wait, and is ahead of who is still there."""
    mine, theirs = case.activities[rank], case.activities[waiting]
    at = next(iter(user_stack(theirs.stack)), None)
    if at is None or case.ran.has(rank, at.file, at.line) is False:
        return False
    past = is_past(case.sources, mine.stack, theirs.stack)
    ahead = mine.kind == ActivityKind.IN_COLLECTIVE and waiting in case.graph.on(rank)
    return past == "certainly" or (ahead and (past == "perhaps" or in_one_loop(case.sources, mine.stack, theirs.stack)))


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
