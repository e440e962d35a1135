"""HD109, HD102: a library runs the loop, and the ranks are at different stages of it."""

from __future__ import annotations

import itertools

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.came_out import has_come_out
from hangdoc.diagnosis.causes.diverging import filled_unevenly
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.library_loops import (
    before_it_is_set,
    fix_of_stops,
    only_condition,
    requested,
    stopped_at,
    stops_of_stages,
)
from hangdoc.diagnosis.causes.phrases import call_name, line_of, place, what_a_library_does, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.schedule_given import ScheduleGiven, schedule_given
from hangdoc.diagnosis.condition.elsewhere.logged import logged_under
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, has_role, plain, stage, words
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.message import (
    Condition,
    Does,
    Joined,
    Message,
    Ranks,
    Verb,
    joined,
    sentence,
)
from hangdoc.model.process import Frame, Stack


@cause("HD102", explains=Diverged, order=140)
def ended_its_stage(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: a library runs the loop, and calls the hook for its end on one side while the other is still in it."""
    gap = blame.found.gap
    if gap is None or blame.found.branch_point is not None or gap.mine is None or gap.theirs is None:
        return None
    hooks = [_stage_hook(token.stack) for token in (gap.mine, gap.theirs)]
    if (hooks[0] is None) == (hooks[1] is None):
        return None
    ended, still = (blame.culprits, others_of(case, blame)) if hooks[0] else (others_of(case, blame), blame.culprits)
    hook, running = hooks[0] or hooks[1], gap.theirs if hooks[0] else gap.mine
    if hook is None or has_come_out(case, running, gap.mine if hooks[0] else gap.theirs):
        return None  # both were in the hook, so that the stage has ended on both
    ran = next((f for f in user_stack(gap.mine.stack) if f in user_stack(gap.theirs.stack)), None)
    below: Message = [" below ", line_of(ran)] if ran else ""
    filled = filled_unevenly(case, blame, gap) if blame.found.alignment.history.inferred else ""
    return Finding(
        "HD102",
        sentence(
            [
                [Does(ended, "is", "are"), " at the end of the stage, in ", place(hook), ", and "],
                [Does(still, "is", "are"), f" still in it, in {call_name(running)}"],
            ],
            where_they_wait(case, others_of(case, blame)) if hooks[1] else "",
        ),
        [
            ["the loop that the library runs", below, " ran fewer rounds on ", Ranks(ended)],
            "",
            [". Or ", Ranks(still), " ", Verb(still, "has", "have"), " come out of the hook already: ", filled]
            if filled
            else "",
        ],
        "give every rank the same number of batches, and let all ranks agree on when to stop (all_reduce what a hook "
        "decides by)",
        "a hook that communicates on some ranks only looks the same",
    )


@cause("HD109", explains=Diverged, order=150)
def another_stage(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD109: a library runs the loop, and is at another stage of it on the two sides."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.mine is None or gap.theirs is None or (point is not None and not point.of_library):
        return None
    here, there = stage(gap.mine.stack), stage(gap.theirs.stack)
    if here is None or there is None or here.stage == there.stage:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    if (logged := _one_value_more(case, blame, gap)) is not None:
        return logged
    reasons = next((s.reasons for s in (here, there) if s.reasons), "")
    stops = stops_of_stages(case)
    led, requests = requested(case, (gap.mine.stack, gap.theirs.stack), (culprits, others))
    given = schedule_given(case, blame) if not (stops or requests) else ScheduleGiven()
    conditions = _logged_under(case, gap) if not case.programs and not stops else []
    more: Message = ""
    if not case.programs:
        reduces = not has_role(gap.mine.stack, Role.LOGGED) and has_role(gap.theirs.stack, Role.LOGGED)
        longer = others if reduces else culprits
        more = [
            ". Or ",
            Ranks(longer),
            " ",
            Verb(longer, "makes", "make"),
            " one call more in a stage that all of ",
        ]
        more = [more, "them go through: one value more that is logged or gathered there"]
        more = [more, ", by ", Joined(conditions, " or ")] if conditions else more
    return Finding(
        "HD109",
        sentence(
            [
                [Does(culprits, "is", "are"), f" {here.words} where ", Does(others, "is", "are"), f" {there.words}"],
                [", below ", place(gap.mine.frame)],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [
                "each stage of the loop that the library runs makes calls of its own: ",
                [what_a_library_does(gap.mine), " on ", Ranks(culprits), ", "],
                [what_a_library_does(gap.theirs), " on ", Ranks(others), f". {reasons}".removesuffix(". ")],
                more,
            ],
            led,
            ["a rank may have ended it at ", stopped_at(stops)] if stops else "",
            given.why,
        ),
        ["give every rank the same ", given.same]
        if given.same
        else fix_of_stops(stops, "") + ", and give every rank the same number of batches"
        if stops
        else before_it_is_set(requests)
        + "give every rank the same number of batches, and let all ranks decide alike what a callback or a flag decides"
        " (all_reduce it)" + (", and log and gather the same values everywhere" if more else ""),
        "one more call of the stage before looks the same"
        if not case.programs or _goes_on_alike(case, gap)
        else given.doubt,
        None if stops else only_condition(requests) or given.decided_at,
    )


def _one_value_more(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding | None:
    """HD109 of ranks that reduce logged values in a stage that the others have come out of, by their calls.

    Example: rank 0 went from validating on to training, rank 1 reduces another metric of that validation.
    """
    assert gap.mine is not None and gap.theirs is not None
    culprits, others = blame.culprits, others_of(case, blame)
    logs_more = has_role(gap.mine.stack, Role.LOGGED)
    here, out = (gap.mine, gap.theirs) if logs_more else (gap.theirs, gap.mine)
    program, still = case.programs.get(out.rank), stage(here.stack)
    if not has_role(here.stack, Role.LOGGED) or program is None or out.order < 1 or still is None:
        return None
    before = stage(program.token(out.order - 1).stack)
    if before is None or before.stage != still.stage:
        return None
    inside, gone = (culprits, others) if logs_more else (others, culprits)
    conditions = _logged_under(case, gap)
    more = "more" if logs_more else "fewer"
    return Finding(
        "HD109",
        sentence(
            [
                [Does(culprits, "logs", "log"), f" {more} values that the ranks reduce than "],
                [Ranks(others), f" while {still.words}, below ", place(gap.mine.frame)],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [
                [Does(gone, "has", "have"), f" finished {still.words}, and ", Does(inside, "makes", "make")],
                f" one call more there: {what_a_library_does(here)}",
            ],
            ["what is logged depends on ", Joined(conditions, " and ")] if conditions else "",
        ),
        "log the same values on every rank (zero, or the last one, where there is nothing to log), or log without "
        "sync_dist and reduce the counts instead",
        "a hook that ran more often there looks the same",
    )


def _logged_under(case: Case, gap: Gap) -> list[Condition]:
    """The user's conditions under which values are logged, where one of the sides reduces such values."""
    reduces = any(has_role(token.stack, Role.LOGGED) for token in (gap.mine, gap.theirs) if token is not None)
    return logged_under(case.sources) if reduces else []


def _goes_on_alike(case: Case, gap: Gap) -> bool:
    """True if a side is in a call of the library like the one before it, which the other may have made less often.

    Example: the culprits are in the third of several calls that reduce logged values, the others train → True.
    """
    for token in (gap.mine, gap.theirs):
        program = case.programs.get(token.rank) if token is not None else None
        if token is None or program is None or token.order < 1:
            continue
        said = words(token.stack)
        if said and words(program.token(token.order - 1).stack) == said:
            return True
    return False


def _stage_hook(stack: Stack) -> Frame | None:
    """The user's hook for the end of a stage, called by a library."""
    for frame, caller in itertools.pairwise(stack):
        if not is_library(frame) and is_library(caller) and pattern("stage_end_hook").search(plain(frame.function)):
            return frame
    return None
