"""Which of several equally small repairs to report. Facts alone break a tie; else it is reported as unbroken.

They are tried in this order: a condition on the rank, the ranks beside them in a larger group, a recorded decision that
is new to a rank, the ranks' own histories, exits, whom others wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.blame.larger_groups import in_company, left_company
from hangdoc.diagnosis.blame.own_steps import (
    left_its_turn,
    left_own_path,
    may_end_a_loop,
    others_strayed,
    strayed,
)
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception
from hangdoc.diagnosis.condition.by_value import decided_anew
from hangdoc.diagnosis.condition.candidates import wrapped_for_one_rank
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.condition.divergence_point import (
    before_its_end,
    nearest_of_the_others,
    own_counterpart,
    partner_aside,
    settle,
)
from hangdoc.diagnosis.condition.elsewhere.caught import in_exit
from hangdoc.diagnosis.condition.loops.round_or_loop import others_in
from hangdoc.diagnosis.context import Case
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class _Option:
    """One of several equally small repairs, settled on the line where its ranks diverged."""

    alignment: Alignment
    guards: list[BranchPoint]
    moved: bool
    """Settling found another call at which the ranks diverged than the smallest repair names."""


def choose(case: Case, candidates: list[Alignment]) -> tuple[Alignment, str, list[BranchPoint]]:
    """(the alignment to report, how a tie was broken, the guards that can explain it).

    The second is '' where there was no tie, 'unbroken' where nothing breaks it, else a reason in words. Example: either
    rank 0 made an extra call or rank 1 is missing it, and rank 0 made it under `if rank == 0:` → (the repair that
    deletes it, 'only the call of rank 0 is under a condition on the rank', [that condition]).
    """
    options = [_option(case, candidate) for candidate in candidates]
    if len(options) == 1:
        return options[0].alignment, "", options[0].guards
    # The surest comes first; each answers only if it fits exactly one of the repairs.
    tried = (
        _by_condition_on_rank,
        _by_company,
        _by_new_decision,
        _by_own_history,
        _by_its_end,
        _by_waits,
    )
    for breaks in tried:
        found = breaks(case, options)
        if found is not None:
            option, reason = found
            return option.alignment, reason, option.guards
    if not case.programs and all(not option.guards and _is_one_line(option.alignment.first) for option in options):
        options.sort(key=lambda o: 0 not in o.alignment.culprits)  # who is special in a program is mostly rank 0
    first = max(options, key=lambda o: (_weak_preference(o.alignment, o.guards), strayed(case, o.alignment.first)))
    return first.alignment, "unbroken", first.guards


def _is_one_line(gap: Gap | None) -> bool:
    """True if both sides are below one line of the user's, at which nothing shows what sets them apart."""
    return gap is not None and gap.mine is not None and gap.theirs is not None and gap.mine.site == gap.theirs.site


def _option(case: Case, candidate: Alignment) -> _Option:
    settled = settle(case, nearest_of_the_others(candidate))
    alignment = before_its_end(partner_aside(own_counterpart(settled)))
    return _Option(alignment, branch_points_of(case, alignment), alignment.when != candidate.when)


def has_pending(case: Case, alignment: Alignment) -> bool:
    """True if the culprits' call is made by the exit of a context that an exception left."""
    gap = alignment.first
    if gap is None or gap.past or gap.mine is None or gap.theirs is None:
        return False
    sides = (gap.mine.stack, gap.theirs.stack)
    return all(in_exit(case, rank, sides) is not None for rank in alignment.culprits)


def _by_condition_on_rank(_case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the option whose culprits are the ranks under a condition on the rank, the reason in words)."""
    for option in options:
        guarded = _guarded_ranks(option.alignment, option.guards)
        match = next((o for o in options if o.alignment.culprits == guarded), None)
        if match is not None:
            return match, f"only the call of {ranks_text(guarded)} is under a condition on the rank"
    return None


def _by_company(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits are alone in their call, the reason in words): each other option's call is one
    that most ranks of a larger group made as well. Or they alone left out what most of these made before theirs."""
    left = [(o, ranks) for o in options if (ranks := left_company(case, o.alignment.first))]
    if len(left) == 1:
        option, ranks = left[0]
        return option, f"{ranks_text(ranks)} made such a call first"
    company = [in_company(case, o.alignment.first) for o in options]
    alone = [o for o, ranks in zip(options, company, strict=True) if not ranks]
    if len(alone) != 1:
        return None
    others = next(ranks for ranks in company if ranks)
    return alone[0], f"{ranks_text(others)} went the other way as well"


def _by_new_decision(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits are recorded to have decided as never before, the reason in words)."""
    fit = [(o, anew) for o in options if (anew := decided_by_culprits(case, o.alignment, o.guards))]
    return fit[0] if len(fit) == 1 else None


def decided_by_culprits(case: Case, alignment: Alignment, points: list[BranchPoint]) -> str:
    """'`if bad:` is recorded to have come out on rank 1 as never before', of the condition that parted the sides; ''
    where there is none, or the others are recorded to have done something new, or may have made a round too many."""
    gap = alignment.first
    if not case.execution or gap is None or gap.past or may_end_a_loop(case, gap):
        return ""
    others = others_in(alignment)
    if gap.theirs is not None and any(case.execution.anew(rank, gap.theirs.stack, came=True) for rank in others):
        return ""
    anew = decided_anew(case, (alignment.culprits, others), gap, points)
    return f"`{anew}` is recorded to have come out on {ranks_text(alignment.culprits)} as never before" if anew else ""


def _by_own_history(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits took a step that is new to them, the reason in words)."""
    fit = [o for o in options if o.moved] or [o for o in options if left_own_path(case, o.alignment)]
    fit = fit or [o for o in options if left_its_turn(case, o.alignment)]
    return (fit[0], f"{_culprits_text(fit[0])} left a path it had taken before") if len(fit) == 1 else None


def _by_its_end(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits have ended while others go on, the reason in words)."""
    # Where others have ended as well, ending is what the program does there.
    fit = [o for o in options if _ended_there(case, o.alignment) and not others_strayed(case, o.alignment)]
    return (fit[0], f"{_culprits_text(fit[0])} ended while others still communicate") if len(fit) == 1 else None


def _by_waits(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(of groups that several sides made, the only option whose culprits hold up another rank, the reason in words).

    Example: two pairs of ranks each made a group of their own; all wait for the one, nobody for the other → the first.
    """
    gaps = [option.alignment.first for option in options]
    tokens = [token for gap in gaps if gap is not None for token in (gap.mine, gap.theirs) if token is not None]
    # Of any other call, whoever made one too many is the one whom nobody waits for.
    if case.hidden or options[0].alignment.history.blind or any(token.op != "new_group" for token in tokens):
        return None
    held_up: dict[int, set[int]] = {}
    for wait in case.graph.waits:
        held_up.setdefault(wait.waiter, set()).update(wait.on)
    for calls in options[0].alignment.history.tokens.values():
        for token in calls:
            if token.pending:
                held_up.setdefault(token.rank, set()).update(*token.sizes or ())  # whom it names has to come
    fit = [option for option in options if _is_awaited(held_up, {*option.alignment.culprits})]
    rest = " or ".join(_culprits_text(option) for option in options if option not in fit)
    return (fit[0], f"no other rank waits for {rest}") if len(fit) == 1 else None


def _is_awaited(held_up: Mapping[int, set[int]], culprits: set[int]) -> bool:
    """True if a rank that is none of them waits for one of them."""
    return any(on & culprits for rank, on in held_up.items() if rank not in culprits)


def _culprits_text(option: _Option) -> str:
    return ranks_text(option.alignment.culprits)


def _ended_there(case: Case, alignment: Alignment) -> bool:
    """True if the culprits are just those members of the group that have ended, and not all members."""
    return set(alignment.culprits) == case.ended & set(alignment.history.members) != set()


def _weak_preference(alignment: Alignment, found: list[BranchPoint]) -> float:
    """How well the culprits fit the likeliest guard, to order repairs that nothing else decides.

    The number is the guard's score, positive if the culprits are the special side: the side under the condition; after
    an early return, a loop that ended or a try body that was left, the other side. Example: the culprits' call is under
    `if step % 100 == 0:` with score 2.0 → 2.0; the others' call is → -2.0.
    """
    if alignment.first is None or not found:
        return 0.0
    top = found[0]
    leaves = top.guard.kind in ("return", "loop") or is_left_by_exception(top)
    special = 1 - top.guarded if leaves else top.guarded
    return top.score if special == 0 else -top.score


def _guarded_ranks(alignment: Alignment, found: list[BranchPoint]) -> tuple[int, ...]:
    """The ranks of the side whose call is under a condition on the rank; () where neither or both are."""
    gap = alignment.first
    if gap is None:
        return ()
    sides = (alignment.culprits, others_in(alignment))
    top = found[0] if found else None
    if top is not None and top.rank_like:
        special = top.guarded if top.guard.taken or not top.both_arms else 1 - top.guarded  # not those in its `else`
        return sides[special]
    wrapped = [wrapped_for_one_rank(t.stack) if t else False for t in (gap.mine, gap.theirs)]
    if wrapped[0] != wrapped[1]:
        return sides[0 if wrapped[0] else 1]
    return ()
