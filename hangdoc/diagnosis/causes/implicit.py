"""HD109: a library communicates on its own, in a call that does not look like it."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.call_counts import call_counts
from hangdoc.diagnosis.causes.came_out import goes_on_from_its_line, was_inside
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.diverging import NOT_SEEN_FILLED, extra_or_missing_call, filled_unevenly
from hangdoc.diagnosis.causes.doubts import doubt_about_condition
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import (
    MOST_CHOICES,
    call_name,
    line_of,
    place,
    what_a_library_does,
    where_they_wait,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.hidden_calls import conditions_of_gathering, conditions_of_running_alone
from hangdoc.diagnosis.condition.elsewhere.hooks import skipped_by_hook
from hangdoc.diagnosis.condition.elsewhere.in_forward import conditions_in_forward
from hangdoc.diagnosis.condition.elsewhere.in_library import conditions_in_library
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import advice, is_implicit
from hangdoc.diagnosis.frames.library import package_of
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.message import (
    Condition,
    Joined,
    Message,
    Ranks,
    Sentences,
    conditions_in,
    joined,
    sentence,
    without,
)


@cause("HD109", explains=Diverged, order=220)
def implicit_collective(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD109: as HD101, but a library communicates on its own."""
    gap = blame.found.gap
    if gap is None or gap.token.op == END or not is_implicit(gap.token.stack):
        return None
    token = gap.token
    library = what_a_library_does(token)
    there = " there" if token.frame is not None else ""
    cure = f" ({known})" if (known := advice(token.stack)) else ""
    point = blame.found.branch_point
    if point is None or point.quiet:
        if gap.kind == "delete" and goes_on_from_its_line(case, gap):
            return _more_calls(case, blame, gap, library)
        if gap.kind == "insert" and was_inside(case, gap):
            return _came_out_early(case, blame, gap, library, cure)
    finding = extra_or_missing_call(case, blame, gap)
    hook, under = skipped_by_hook(case.sources) if point is None or point.of_library else ("", [])
    answer: Message = [f" {hook}() may have made the library leave it out, by ", Joined(under, " and ")]
    told = point is not None or under or blame.found.came_before or any(conditions_in(finding.why))
    within = conditions_in_library(case.sources, token.stack) if not told else []
    if within:
        return _decided_within(case, blame, gap, finding.verdict, within, [_FIX_WITHIN, cure])
    return Finding(
        "HD109",
        without(finding.verdict, f" ({library})"),
        [
            [line_of(token.frame), " does not look like communication, but "] if token.frame is not None else "",
            [f"{library}{there}, and every rank has to take part. ", Sentences(finding.why)],
            _where_to_look(case) if blame.found.came_before else "",
            answer if under else "",
        ],
        FIX_QUIET
        if point is not None and point.quiet
        else _FIX_FILLED
        if point is None and not under and filled_unevenly(case, blame, gap)
        else [_how_to_fix(blame, gap), cure]
        if under or finding.decided_at is None
        else finding.fix,
        _UNSEEN_ANSWER if under else finding.doubt,
        under[0] if under else finding.decided_at,
    )


_UNSEEN_ANSWER = "what the hook answered on each rank was not seen"


def _where_to_look(case: Case) -> Message:
    """Conditions of the program that may have parted the ranks some calls before."""
    forward = conditions_in_forward(case.sources)[:MOST_CHOICES]
    gathering = conditions_of_gathering(case.sources)[:MOST_CHOICES]
    alone = [each for each in conditions_of_running_alone(case.sources) if each not in gathering][:MOST_CHOICES]
    said: list[Message] = []
    if alone:
        said.append(["A model that all ranks share is run under ", Joined(alone, " and ")])
    if gathering:
        said.append(["A call that takes all ranks is made under ", Joined(gathering, " and ")])
    if forward:
        said.append(["Which parts forward() uses depends on ", Joined(forward, " and ")])
    return [" ", Joined(said, ". ")] if said else ""


FIX_QUIET = "let all ranks agree on which rounds communicate (all_reduce what the condition tests)"
_FIX_ROUNDS = "give every rank the same number of rounds there"
_FIX_FILLED = "fill it equally often on every rank, with something empty where there is nothing"
_FIX_WITHIN = (
    "let all ranks go the same way there: all_reduce what the library tests before it does, or give every rank what "
    "passes the test"
)
_UNSEEN_WITHIN = "which way the library went there on each rank was not seen"
_FIX_BEFORE = (
    "look at what came before these calls: every rank makes both, and one rank skipped, or made, a call before them"
)


def _how_to_fix(blame: Blame[Diverged], gap: Gap) -> Message:
    if blame.found.came_before:
        return _FIX_BEFORE
    if gap.mine and gap.theirs and user_stack(gap.mine.stack) == user_stack(gap.theirs.stack):
        return "see which of the calls below that line some ranks make, and others do not"
    line = place(gap.token.frame) or "that line"
    return ["let every rank run ", line, ", or none"]


def _more_calls(case: Case, blame: Blame[Diverged], gap: Gap, library: str) -> Finding:
    """HD109 of culprits that are in the line where the last matching call was, which issues more calls on them."""
    culprits, others = Ranks(blame.culprits), Ranks(others_of(case, blame))
    return Finding(
        "HD109",
        without(extra_or_missing_call(case, blame, gap).verdict, f" ({library})"),
        joined(
            [
                [f"{library} at ", place(gap.token.frame), ", in more calls on ", culprits, " than on ", others],
                call_counts(case, blame),
            ],
            what_decided(case, blame),
        ),
        "compare on the ranks what that line works on, the library's options, and in which rounds it communicates",
    )


def _came_out_early(case: Case, blame: Blame[Diverged], gap: Gap, library: str, cure: str) -> Finding:
    """HD109 of culprits that went on from a line that issues more calls on the others."""
    culprits, others, line = Ranks(blame.culprits), Ranks(others_of(case, blame)), place(gap.token.frame)
    filled = filled_unevenly(case, blame, gap)
    decided = "" if filled else what_decided(case, blame)
    within = conditions_in_library(case.sources, gap.token.stack) if not (filled or decided) else []
    verdict: Message = sentence(
        [culprits, " came out of ", line, f" earlier than the others, without its last {call_name(gap.token)}"],
        where_they_wait(case, others_of(case, blame)),
    )
    if within:
        return _decided_within(case, blame, gap, verdict, within, [_FIX_WITHIN, cure])
    return Finding(
        "HD109",
        without(verdict, f" ({library})"),
        joined(
            [
                [f"{library} at ", line, ", in fewer calls on ", culprits, " than on ", others],
                call_counts(case, blame),
            ],
            filled or decided,
        ),
        _FIX_FILLED if filled else FIX_QUIET if decided else _FIX_ROUNDS + cure,
        NOT_SEEN_FILLED if filled else doubt_about_condition(case, blame) if decided else _UNSEEN_WITHIN,
    )


def _decided_within(
    case: Case, blame: Blame[Diverged], gap: Gap, verdict: Message, within: list[Condition], fix: Message
) -> Finding:
    """HD109 of a line that all ranks run, below which a library's own conditions decide whether it communicates."""
    culprits, others, token = Ranks(blame.culprits), Ranks(others_of(case, blame)), gap.token
    library = what_a_library_does(token)
    fewer = "fewer" if gap.kind == "insert" else "more"
    line = line_of(token.frame) or "that line"
    counted: Message = [f"{library} at ", line, f", in {fewer} calls on ", culprits, " than on ", others]
    libraries: list[Message] = list(dict.fromkeys(package_of(each.file) for each in within))
    decided: Message = ["in ", Joined(libraries, " and "), ", what it calls there depends on ", Joined(within, " and ")]
    return Finding(
        "HD109",
        without(verdict, f" ({library})"),
        joined([counted, call_counts(case, blame)], decided),
        fix,
        _UNSEEN_WITHIN,
        within[0],
        next(iter(within[1:]), None),
    )
