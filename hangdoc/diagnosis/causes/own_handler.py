"""HD103 of a rank whose part differs from the others': an exception led a leader past its own call of theirs."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, call_name, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.divergence_point import is_own
from hangdoc.diagnosis.condition.elsewhere.raised import raised_before
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.handlers import Swallowing, swallowing
from hangdoc.model.message import Condition, Joined, Message, Place, Ranks, joined, sentence
from hangdoc.model.process import Stack


@cause("HD103", explains=Diverged, order=161)
def past_its_own_call(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: in each round, the culprits made the missing call from a line of their own after another one; this time
    they made that other one, and no condition but an exception leads past the line.

    Example: a leader tells the command, prepares it in a `try`, and runs it with the others; prepare() raised.
    """
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.past or gap.token.op == END or blame.found.branch_points:
        return None
    before = _call_before(case, gap) if is_own(gap) else None
    left = _left(case, gap, before) if before is not None else None
    if before is None or left is None:
        return None
    tried, way, since = left
    frame = way[0]
    handler = Condition(tried.condition, frame.file, tried.line)
    raised = raised_before(case.sources, way, since, tried.line)
    said = case.last_words(blame.culprits[0])
    why: Message = [handler, " led ", Ranks(blame.culprits), " past the ", call_name(gap.token), " that follows"]
    return Finding(
        "HD103",
        sentence(
            [
                [Ranks(blame.culprits), " left the block at ", Place(frame.file, tried.first)],
                [" by an exception that ", handler, " caught, and went on to ", call_at(gap.mine)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            why,
            ["it may have been raised under ", Joined(raised, " or ")] if raised else "",
            f"it last wrote: {said}" if said else "",
        ),
        "check what may fail before the others are told to begin, or let them all take part in what was begun",
        "the exception itself was not seen",
        decided_at=raised[0] if len(raised) == 1 else handler,
    )


def _call_before(case: Case, gap: Gap) -> Token | None:
    """The call that the culprits made just before their present one, where it is one that used to be followed by the
    missing one."""
    mine = gap.mine
    program = case.programs.get(mine.rank) if mine is not None else None
    if mine is None or program is None or mine.order < 1:
        return None
    before = program.token(mine.order - 1)
    used = [
        later.site for call, later in zip(program.tokens, program.tokens[1:], strict=False) if call.site == before.site
    ]
    return before if gap.token.site in used[:-1] else None


def _left(case: Case, gap: Gap, before: Token) -> tuple[Swallowing, Stack, int] | None:
    """(the `try` around both the call before and the missing one, the way from it to the missing one, the line of the
    call before in its first function)."""
    own = user_stack(gap.token.stack)
    for at, frame in enumerate(own):
        there = next((each for each in user_stack(before.stack) if same_function(each, frame)), None)
        for tried in swallowing(case.sources, frame) if there is not None else ():
            if there is not None and tried.tries(there.line) and there.line <= frame.line:
                return tried, tuple(reversed(own[: at + 1])), min(there.line, frame.line)
    return None
