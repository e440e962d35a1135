"""HD109, HD111: a library communicates on its own, in a call that does not look like it. HD102 of a library's loop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.causes.call_counts import call_counts
from hangdoc.diagnosis.causes.came_out import goes_on_from_its_line, has_come_out, was_inside
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.diverging import (
    NOT_SEEN_FILLED,
    doubt_about_condition,
    extra_or_missing_call,
    filled_unevenly,
)
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.library_loops import (
    before_it_is_set,
    only_condition,
    requested,
    stopped_at,
    stops_of_stages,
)
from hangdoc.diagnosis.causes.phrases import call_name, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.hidden_calls import conditions_of_gathering, conditions_of_running_alone
from hangdoc.diagnosis.condition.elsewhere.hooks import skipped_by_hook
from hangdoc.diagnosis.condition.elsewhere.in_forward import conditions_in_forward
from hangdoc.diagnosis.condition.elsewhere.in_library import conditions_in_library
from hangdoc.diagnosis.condition.elsewhere.in_loss import conditions_in_loss
from hangdoc.diagnosis.condition.elsewhere.logged import logged_under
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, advice, has_role, is_implicit, library_call, plain, stage, words
from hangdoc.diagnosis.frames.library import is_library, package_of
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.message import (
    Condition,
    Does,
    Joined,
    Message,
    Ranks,
    Sentences,
    Verb,
    conditions_in,
    joined,
    sentence,
)
from hangdoc.model.process import Frame, Stack

_MOST_CHOICES = 3
"""Conditions of forward() in one report; chosen by hand."""


@cause("HD111", explains=Diverged, order=160)
def unused_parameters(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD111: one rank's backward issued fewer buckets than every time before, or none."""
    gap = blame.found.gap
    if gap is None or gap.kind != "insert" or not has_role(gap.token.stack, Role.BACKWARD):
        return None
    within = _is_within_a_backward(case, blame, gap)
    # A condition that keeps the rank from the line explains a backward that is missing as a whole.
    if not within and (blame.found.branch_point is not None or not _issued_fewer(case, blame, gap)):
        return None
    culprits = Ranks(blame.culprits)
    choices = conditions_in_forward(case.sources)[:_MOST_CHOICES]
    hook, under = skipped_by_hook(case.sources) if not within else ("", [])
    asked = [each for each in conditions_in_loss(case.sources, gap.token.frame) if each not in (*choices, *under)]
    first, second = (*under[:1], *choices[:1], *asked, None, None)[:2]
    doubt = "" if within else "a backward that was left out as a whole looks the same"
    return Finding(
        "HD111",
        sentence(
            [culprits, " left backward() at ", place(gap.token.frame), " with fewer gradient buckets than the others"],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [
                ["DDP reduces a bucket when all of its parameters are ready: the forward of ", culprits],
                " left parameters out" + ("" if within else ", ran under no_sync or never called the model"),
                ", and the others wait for their gradients",
            ],
            ["which parts forward() uses depends on ", Joined(choices, " and ")] if choices else "",
            ["what the loss is made of depends on ", Joined(asked, " and ")] if asked else "",
            [f"{hook}() may have told the library to leave the backward out, by ", Joined(under, " and ")]
            if under
            else "",
        ),
        "use every parameter on every rank, or DistributedDataParallel(find_unused_parameters=True)"
        + ("" if within else "; where a batch has nothing to learn from, call the model all the same (loss * 0)"),
        doubt or ("which way forward() went was not seen" if choices or asked else ""),
        first,
        second,
    )


def _issued_fewer(case: Case, blame: Blame[Diverged], gap: Gap) -> bool:
    """True if the rank's last backward at the gap's line issued fewer buckets than one before, or none. Without a
    journal nobody knows how many there were before: only none counts.

    Example: 3, 3 and then 1 call from `loss.backward()` → True.
    """
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


@cause("HD109", explains=Diverged, order=220)
def implicit_collective(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD109: as HD101, but a library communicates on its own."""
    gap = blame.found.gap
    if gap is None or gap.token.op == END or not is_implicit(gap.token.stack):
        return None
    token = gap.token
    library = words(token.stack) or f"{token.op} inside {library_call(token.stack) or 'a library'}"
    cure = f" ({known})" if (known := advice(token.stack)) else ""
    point = blame.found.branch_point
    if point is None or point.quiet:
        if gap.kind == "delete" and goes_on_from_its_line(case, gap):
            return _more_calls(case, blame, gap, library)
        if gap.kind == "insert" and was_inside(case, gap):
            return _came_out_early(case, blame, gap, library, cure)
    finding = extra_or_missing_call(case, blame, gap)
    hook, under = skipped_by_hook(case.sources) if point is None or point.of_library else ("", [])
    answer: Message = [f" {hook}() may have told the library to leave it out, by ", Joined(under, " and ")]
    told = point is not None or under or blame.found.came_before or any(conditions_in(finding.why))
    within = conditions_in_library(case.sources, token.stack) if not told else []
    if within:
        return _decided_within(case, blame, gap, finding.verdict, within, [_FIX_WITHIN, cure])
    return Finding(
        "HD109",
        finding.verdict,
        [
            [line_of(token.frame) or f"the work of thread {token.thread}", " does not look like communication, but "],
            [f"it is: {library} is a collective of all ranks. ", Sentences(finding.why)],
            _where_to_look(case) if blame.found.came_before else "",
            answer if under else "",
        ],
        FIX_QUIET if point is not None and point.quiet else [_how_to_fix(blame, gap), cure],
        _UNSEEN_ANSWER if under else finding.doubt,
        under[0] if under else None,
    )


_UNSEEN_ANSWER = "what the hook answered on each rank was not seen"


def _where_to_look(case: Case) -> Message:
    """Conditions of the program that may have parted the ranks some calls before."""
    forward = conditions_in_forward(case.sources)[:_MOST_CHOICES]
    gathering = conditions_of_gathering(case.sources)[:_MOST_CHOICES]
    alone = [each for each in conditions_of_running_alone(case.sources) if each not in gathering][:_MOST_CHOICES]
    said: list[Message] = []
    if alone:
        said.append(["A model that all ranks share is run under ", Joined(alone, " and ")])
    if gathering:
        said.append(["A call that takes all ranks is made under ", Joined(gathering, " and ")])
    if forward:
        said.append(["Which parts forward() uses depends on ", Joined(forward, " and ")])
    return [" ", Joined(said, ". ")] if said else ""


FIX_QUIET = (
    "let all ranks decide alike which rounds communicate: all_reduce what the condition tests, or count rounds, which "
    "are the same on every rank"
)
_FIX_ROUNDS = "give every rank the same number of rounds there, and let all ranks agree on when to stop"
_FIX_WITHIN = (
    "let all ranks go the same way there: all_reduce what the library tests before it does, or give every rank what "
    "passes the test"
)
_UNSEEN_WITHIN = "which way the library went there on each rank was not seen"
_FIX_BEFORE = (
    "as a rule, every rank makes both calls, so look at what came before them: a call of the library on some ranks "
    "only, a module that one rank skipped, an exception that it caught"
)


def _how_to_fix(blame: Blame[Diverged], gap: Gap) -> Message:
    if blame.found.came_before:
        return _FIX_BEFORE
    if gap.mine and gap.theirs and user_stack(gap.mine.stack) == user_stack(gap.theirs.stack):
        return "let every rank reach it, or none: look at what is called on some ranks only"
    line = place(gap.token.frame) or "that line"
    return ["let every rank run ", line, ", or leave the library call out of the rank-dependent part"]


def _more_calls(case: Case, blame: Blame[Diverged], gap: Gap, library: str) -> Finding:
    """HD109 of culprits that are in the line where the last matching call was, which issues more calls on them."""
    culprits, others = Ranks(blame.culprits), Ranks(others_of(case, blame))
    return Finding(
        "HD109",
        extra_or_missing_call(case, blame, gap).verdict,
        joined(
            [
                [f"{library} at ", place(gap.token.frame), " issues more calls on ", culprits, " than on ", others],
                call_counts(case, blame),
            ],
            what_decided(case, blame)
            or "what it works on differs there, is set up differently, or was skipped in other rounds (no_sync)",
        ),
        "build it alike on every rank (the same parameters in the same order, the same options; for DDP: "
        "find_unused_parameters, static_graph, bucket_cap_mb), and skip its communication in the same rounds",
    )


def _came_out_early(case: Case, blame: Blame[Diverged], gap: Gap, library: str, cure: str) -> Finding:
    """HD109 of culprits that went on from a line that issues more calls on the others."""
    culprits, others, line = Ranks(blame.culprits), Ranks(others_of(case, blame)), place(gap.token.frame)
    filled = filled_unevenly(case, blame, gap)
    decided = "" if filled else what_decided(case, blame)
    within = conditions_in_library(case.sources, gap.token.stack) if not (filled or decided) else []
    verdict = sentence(
        [culprits, " came out of ", line, f" earlier than the others, without its last {call_name(gap.token)}"],
        where_they_wait(case, others_of(case, blame)),
    )
    if within:
        return _decided_within(case, blame, gap, verdict, within, [_FIX_WITHIN, cure])
    return Finding(
        "HD109",
        verdict,
        joined(
            [
                [f"{library} is a collective of all ranks, and ", line, " issues fewer on ", culprits],
                [" than on ", others, call_counts(case, blame)],
            ],
            filled or decided or "it ran fewer rounds there, or was stopped",
        ),
        "fill it equally often on every rank, with something empty where there is nothing"
        if filled
        else FIX_QUIET
        if decided
        else _FIX_ROUNDS + cure,
        NOT_SEEN_FILLED if filled else doubt_about_condition(case, blame) if decided else _UNSEEN_WITHIN,
    )


def _decided_within(
    case: Case, blame: Blame[Diverged], gap: Gap, verdict: Message, within: list[Condition], fix: Message
) -> Finding:
    """HD109 of a line that all ranks run, below which a library's own conditions decide whether it communicates."""
    culprits, others, token = Ranks(blame.culprits), Ranks(others_of(case, blame)), gap.token
    library = words(token.stack) or f"{token.op} inside {library_call(token.stack) or 'a library'}"
    fewer = "fewer" if gap.kind == "insert" else "more"
    counted: Message = [line_of(token.frame) or "that line", f" issues {fewer} on ", culprits, " than on ", others]
    libraries: list[Message] = list(dict.fromkeys(package_of(each.file) for each in within))
    decided: Message = ["in ", Joined(libraries, " and "), ", what it calls there depends on ", Joined(within, " and ")]
    return Finding(
        "HD109",
        verdict,
        joined([f"{library} is a collective of all ranks, and ", counted, call_counts(case, blame)], decided),
        fix,
        _UNSEEN_WITHIN,
        within[0],
        next(iter(within[1:]), None),
    )


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
            ": its data ended earlier there, or a hook or a flag stopped it",
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
                "each stage of the loop that the library runs communicates by itself: ",
                [words(gap.mine.stack) or gap.mine.op, " on ", Ranks(culprits), " is paired with "],
                [words(gap.theirs.stack) or gap.theirs.op, " on ", Ranks(others), f". {reasons}".removesuffix(". ")],
                more,
            ],
            led,
            ["a rank may have ended it at ", stopped_at(stops)] if stops else "",
        ),
        before_it_is_set(requests)
        + "give every rank the same number of batches, and let all ranks decide alike what a callback or a flag decides"
        " (all_reduce it)" + (", and log and gather the same values everywhere" if more else ""),
        "one more call of the stage before looks the same" if not case.programs or _goes_on_alike(case, gap) else "",
        None if stops else only_condition(requests),
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
                [Does(gone, "has", "have"), f" finished {still.words}, and ", words(here.stack) or here.op],
                [" is one call longer on ", Ranks(inside)],
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
