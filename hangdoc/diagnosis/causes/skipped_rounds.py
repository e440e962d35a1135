"""HD102 and HD103 where a round of the loop left the call out, or turned it off, rather than the loop ended early."""

from __future__ import annotations

from hangdoc.diagnosis.causes.call_counts import calls_in_loop, compared
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.implicit import FIX_QUIET
from hangdoc.diagnosis.causes.phrases import cited, where_they_wait
from hangdoc.diagnosis.causes.quiet_rounds import EARLY_OR_QUIET, round_without_call
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.loops.caught_rounds import caught_rounds
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.iterators import makes_items_alike
from hangdoc.diagnosis.condition.loops.loop_counts import goes_round_alike
from hangdoc.diagnosis.condition.loops.round_or_loop import skips_of
from hangdoc.diagnosis.condition.loops.skip_or_end import counts_rounds, likelier_skips, skips_counted
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.model.message import Condition, Joined, Message, Place, Ranks, Values, joined, sentence


@cause("HD102", explains=Diverged, order=166)
def fewer_synchronised_rounds(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: the culprits communicated in fewer rounds of a loop, which goes round equally often on every rank.

    What decides which rounds communicate goes by more than their number: else it would be the same on every rank.
    """
    loop, gap = blame.found.branch_point, blame.found.gap
    if gap is None or loop is None or not loop.uneven or loop.own_arm or loop.of_library:
        return None
    tree, by = case.sources.function(loop.file, loop.guard.line), round_without_call(case, blame, loop, gap).by
    if tree is None or by is None or ways_out(tree, loop.guard.line) or counts_rounds(case.sources, by):
        return None
    made = makes_items_alike(
        case.sources, lambda name: case.values.of(loop.file, loop.function, name), loop.file, loop.guard.line
    )
    if made is None or fell_out(case, loop, blame.culprits, gap.mine):
        return None
    culprits, at = blame.culprits, cited(loop.guard, loop.file)
    return Finding(
        "HD102",
        sentence(
            [
                [Ranks(culprits), " synchronized in fewer rounds of the loop, or left it early"],
                [" (", Place(loop.file, loop.guard.line), ")"],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [by, " decides which rounds communicate, and was decided by each rank for itself"],
            [at, " gets its items from ", made, ", as many on every rank", compared(calls_in_loop(case, blame))],
            ["or ", at, " ended earlier on ", Ranks(culprits)],
        ),
        FIX_QUIET,
        EARLY_OR_QUIET,
        by,
    )


@cause("HD102", explains=Diverged, order=168)
def round_left_out(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: the culprits made a call of the loop fewer, and a condition on the way to it tells why."""
    loop, gap = blame.found.branch_point, blame.found.gap
    if gap is None or loop is None or not loop.uneven:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    if loop.guarded != 1:
        return None
    skips = likelier_skips(case, loop, skips_of(case.sources, blame.found.branch_points), (culprits, others))
    if not skips or fell_out(case, loop, culprits, gap.mine):
        return None
    counted = skips_counted(case, skips[0], (culprits, others))
    shown: list[Message] = [[f"{name} = ", Values(per_rank, " | ")] for name, per_rank in counted.items()]
    said = Joined([cited(skip.guard, skip.file) for skip in skips], " or ")
    condition = skips[0].guard.condition.removeprefix("if ").removesuffix(":")
    agree = f"`{condition}`" if len(skips) == 1 else "these conditions"
    return Finding(
        "HD102",
        sentence(
            [
                [Ranks(culprits), " skipped a round of the loop", "" if counted else ", or left it early"],
                [" (", Place(loop.file, loop.guard.line), ")"],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [said, " kept a round of the loop from the call", compared(calls_in_loop(case, blame))],
            Joined(shown) if shown else "",
            "" if counted else ["or ", cited(loop.guard, loop.file), " ended earlier on ", Ranks(culprits)],
        ),
        f"let all ranks agree on {agree} in every round (all_reduce the flag)"
        + ("" if counted else "; if no round was skipped, give every rank the same number of rounds"),
        EARLY_OR_QUIET,
        Condition(skips[0].guard.condition, skips[0].file, skips[0].guard.line),
    )


@cause("HD103", explains=Diverged, order=169)
def round_raised(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: the culprits made a call of the loop fewer, and a handler in it goes on with the next round after what the
    program itself raises before the call.

    Example: `try: ⏎ train(doc) ⏎ except BadDocument: ⏎ self.skipped += 1`, and train() begins with `if not doc.tokens:
    ⏎ raise BadDocument`.
    """
    loop, gap = blame.found.branch_point, blame.found.gap
    if gap is None or gap.theirs is None or loop is None or not loop.uneven or loop.guarded != 1 or loop.own_arm:
        return None
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or loop.of_library or ways_out(tree, loop.guard.line) or goes_round_alike(case, loop):
        return None
    culprits, others, at = blame.culprits, others_of(case, blame), cited(loop.guard, loop.file)
    caught = next(caught_rounds(case, loop, gap.theirs.stack, (culprits, others)), None)
    if caught is None or fell_out(case, loop, culprits, gap.mine):
        return None
    said = case.last_words(culprits[0])
    return Finding(
        "HD103",
        sentence(
            [
                [Ranks(culprits), " skipped a round of the loop after an exception, or left it early"],
                [" (", Place(loop.file, loop.guard.line), ")"],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [
                [caught.handler, " goes on with the next round after an exception, without the call"],
                compared(calls_in_loop(case, blame)),
            ],
            ["it may have been raised under ", Joined(caught.raised, " or ")] if caught.raised else "",
            f"{'it' if len(culprits) == 1 else 'the first of them'} last wrote: {said}" if said else "",
            ["or ", at, " ended earlier on ", Ranks(culprits)],
        ),
        "let all ranks agree to skip the round in which one of them fails (all_reduce a flag before the call); if no "
        "round was skipped, give every rank the same number of rounds",
        "the exception itself was not seen, and a loop that ended early looks the same",
        caught.raised[0] if len(caught.raised) == 1 else caught.handler,
    )
