"""HD102 under Join: a rank is through with its inputs, and the others make a call that Join does not answer."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, cited, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.model.message import Condition, Message, Ranks, Verb, joined, sentence


@cause("HD102", explains=Diverged, order=141)
def joined_early(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: Join answers the steps of the ranks that still have inputs, but not every call that they make.

    Example: `with model.join():` around a loop with `model(x)` and `all_gather(losses)`; rank 1 has fewer batches, and
    at the end of the `with` the others' all_gather is the first call that finds no answer.
    """
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return None
    through = [has_role(token.stack, Role.JOINED) for token in (gap.mine, gap.theirs)]
    if through[0] == through[1]:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    ended, going, block, call = (
        (culprits, others, gap.mine, gap.theirs) if through[0] else (others, culprits, gap.theirs, gap.mine)
    )
    loop = _loop_within(case, block, call)
    unanswered: Message = ["Join answers the steps of what it was given, and not the ", call_at(call)]
    return Finding(
        "HD102",
        sentence(
            [
                [Ranks(culprits), " ", Verb(culprits, "is", "are"), " at the end of" if through[0] else " still in"],
                [" the `with` block of Join (", line_of(block.frame), ") ", "before" if through[0] else "after"],
                [" the others" if through[0] else " the others left it"],
            ],
            where_they_wait(case, others),
        ),
        joined([loop, " ended on ", Ranks(ended), " and not on ", Ranks(going)] if loop else "", unanswered),
        "keep calls that Join does not answer out of its `with` block, or give every rank the same number of batches",
        decided_at=loop,
    )


def _loop_within(case: Case, block: Token, call: Token) -> Condition | None:
    """The outermost loop in the body of the `with` at whose end ``block`` is and in which ``call`` is made."""
    head = block.frame
    inside = next((f for f in user_stack(call.stack) if head is not None and same_function(f, head)), None)
    tree = case.sources.function(inside.file, inside.line) if inside is not None else None
    if head is None or inside is None or tree is None:
        return None
    loops = (g for g in loops_around(tree, inside.line) if g.line > head.line)
    return next((cited(loop, inside.file) for loop in loops), None)
