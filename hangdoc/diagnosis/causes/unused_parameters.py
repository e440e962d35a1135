"""HD111: a backward that reduces fewer gradients on one rank than on the others."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.in_forward import conditions_in_forward
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.frames.stacks import lines_of
from hangdoc.model.message import (
    Condition,
    Joined,
    Message,
    Ranks,
    joined,
    sentence,
)

_LEFT_OUT = "a backward that was left out as a whole looks the same"
_BY_ITS_CALLER = "what forward() was given is known by the names of its caller"


@cause("HD111", explains=Diverged, order=160)
def unused_parameters(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD111: one rank's backward issued fewer buckets than every time before, or none."""
    gap = blame.found.gap
    if gap is None or gap.kind != "insert" or not has_role(gap.token.stack, Role.BACKWARD):
        return None
    within = _is_within_a_backward(case, blame, gap)
    choices = conditions_in_forward(case.sources)[:LISTED]
    seen = _seen_apart(case, blame, gap, choices)
    # A condition that keeps the rank from the line explains a backward that is missing as a whole.
    kept = blame.found.branch_point is not None or not _issued_fewer(case, blame, gap)
    if not within and seen is None and kept:
        return None
    culprits = Ranks(blame.culprits)
    choices = [seen] if seen is not None else choices
    first, second = (*choices[:1], None, None)[:2]
    doubt = _LEFT_OUT if seen is None else "" if _is_recorded(case, blame, seen) else _BY_ITS_CALLER
    return Finding(
        "HD111",
        sentence(
            [culprits, " left backward() at ", place(gap.token.frame), " with fewer gradient buckets than the others"],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [
                "DDP reduces a bucket once all of its parameters have a gradient, and fewer buckets were ready on ",
                culprits,
            ],
            _parts(case, blame, seen, choices),
        ),
        "use every parameter on every rank, or DistributedDataParallel(find_unused_parameters=True)"
        + ("" if within else "; call model and backward() in every step (with loss * 0 if need be)"),
        doubt if not within else "which way forward() went was not seen" if seen is None and choices else "",
        first,
        second,
    )


def _parts(case: Case, blame: Blame[Diverged], seen: Condition | None, choices: Sequence[Condition]) -> Message:
    if seen is not None:
        sides: Message = [Ranks(blame.culprits), " than on ", Ranks(others_of(case, blame))]
        return ["forward() goes by ", seen, ", which came out otherwise on ", sides]
    return ["which parts forward() uses depends on ", Joined(choices, " and ")] if choices else ""


def _seen_apart(case: Case, blame: Blame[Diverged], gap: Gap, choices: Sequence[Condition]) -> Condition | None:
    """The condition of forward() that what it was given makes come out one way on the culprits and the other way on all
    others, by the frame that calls backward().

    Example: `if pictures is not None:`, and `pictures` is None where rank 1 ran its last round, and a tensor where the
    others are in theirs → that condition.
    """
    recorded = [each for each in choices if _is_recorded(case, blame, each)]
    frame = gap.token.frame
    if frame is None or recorded:
        return next(iter(recorded), None)
    for each in choices:
        test = each.source.removeprefix("if ").removesuffix(":")
        mine, theirs = (
            {*case.values.truths(frame.file, frame.function, test, ranks).values()}
            for ranks in (blame.culprits, others_of(case, blame))
        )
        if (mine, theirs) in (({True}, {False}), ({False}, {True})):
            return each
    return None


def _is_recorded(case: Case, blame: Blame[Diverged], test: Condition) -> bool:
    return case.execution.is_new((test.file, test.line, test.source), blame.culprits, others_of(case, blame))


def _issued_fewer(case: Case, blame: Blame[Diverged], gap: Gap) -> bool:
    """True if the rank's last backward at the gap's line issued fewer buckets than one before, or none. Without a
    journal nobody knows how many there were before: only none counts.

    Example: 3, 3 and then 1 call from `loss.backward()` → True.
    """
    if gap.mine is not None and lines_of(gap.mine.site) == lines_of(gap.token.site):
        return False  # a line of a library's loop, which runs many
    # The rank is after the line now, and no condition kept it from there: it ran the line, and issued nothing.
    ran_it = gap.mine is not None and bool(is_past(case.sources, gap.mine.stack, gap.token.stack))
    program = case.programs.get(blame.culprits[0])
    if program is None:
        return ran_it
    rounds = _rounds_at(program.tokens, gap) + ([0] if ran_it else [])
    return len(rounds) > 1 and rounds[-1] < max(rounds[:-1])


def _is_within_a_backward(case: Case, blame: Blame[Diverged], gap: Gap) -> bool:
    """True if the rank issued some buckets of this backward, and not all: the sizes of the calls from one line repeat
    with its buckets, and the rank's calls end in the middle of such a period.

    Example: the others' sizes are a b a b, the rank's a b a → True.
    """
    history = blame.found.alignment.history
    if history.inferred:
        return False
    theirs = [t.sizes for t in history.tokens.get(others_of(case, blame)[0], ()) if t.site == gap.token.site]
    mine = [t for t in history.tokens.get(blame.culprits[0], ()) if t.site == gap.token.site]
    mine = [t for t in mine if gap.mine is None or t.sequence < gap.mine.sequence]
    return len(mine) % (period(theirs) or 1) != 0


def _rounds_at(tokens: Sequence[Token], gap: Gap) -> list[int]:
    """How many calls in a row came from the gap's line, each time it was reached, up to the gap.

    Example: of the gap's line G and another one X, the calls G G X G → [2, 1].
    """
    rounds: list[int] = []
    inside = False
    for token in tokens:
        if gap.mine is not None and token.order >= gap.mine.order:
            break
        here = token.site == gap.token.site
        if here and not inside:
            rounds.append(0)
        if here:
            rounds[-1] += 1
        inside = here
    return rounds
