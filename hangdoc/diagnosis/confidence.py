"""How sure the diagnosis is as a whole: rank, cause and condition."""

from __future__ import annotations

from hangdoc.diagnosis.blame.missing_request import MissingRequest
from hangdoc.diagnosis.blame.unset_key import UnsetKey
from hangdoc.diagnosis.calls.alignment import crossed_before
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.interrupted import perhaps_caught
from hangdoc.diagnosis.condition.branch_point import is_telling
from hangdoc.diagnosis.condition.further_on import further_on
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.dumps import lacks_the_past
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.execution.moments import apart, came_last
from hangdoc.diagnosis.execution.tested import ENDED
from hangdoc.diagnosis.explanation import Blame, Explanation, Nothing, OutsideWait, Supposed
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.hypotheses.judge import CERTAIN, LIKELY, POINTED, hypotheses
from hangdoc.diagnosis.outcome import will_never_go_on
from hangdoc.diagnosis.reason.spectra import odd_in_spectra
from hangdoc.diagnosis.reason.starts import Sides
from hangdoc.diagnosis.state.process import is_pasted
from hangdoc.model.diagnosis import Branch
from hangdoc.model.kinds import ActivityKind, Confidence, Outcome
from hangdoc.model.same_job import MOMENT
from hangdoc.model.wording import name_duration, ranks_text


def how_sure(
    case: Case, found: Blame[Explanation], named: Finding, outcome: Outcome, doubt: str, branch: Branch | None
) -> tuple[Confidence, str]:
    """The confidence and its reason. A hang is never certain if it is not proved, or if its cause has a ``doubt``, or
    if something that was not seen lies between the condition and the calls. ``branch``: the condition that is told.

    Examples: the sides diverged at a condition above a function whose source was not read → LIKELY, "… was not read";
    of a circle of two, either may break it, and 97 % of the evidence points to one → LIKELY.
    """
    confidence, sure = _of_the_blame(case, found, outcome, doubt)
    seen = _as_recorded(case, found, branch) if branch is not None and case.execution else ""
    if confidence == Confidence.LIKELY and not doubt and seen and _is_proved(case, found, outcome):
        what_was_seen = sure.partition("; ")[0]  # the rest says what left it open, before the recorders were asked
        return Confidence.CERTAIN, f"{what_was_seen}; {seen}"
    left_open = confidence == found.confidence == Confidence.POSSIBLE  # by the blame itself, and by nothing after it
    if left_open and outcome == Outcome.HANG and _is_one_of_few_sides(case, found):
        return Confidence.LIKELY, sure
    if confidence != Confidence.CERTAIN or (found.diverged is not None and found.diverged.is_recorded):
        return confidence, sure
    unseen = perhaps_caught(case, found, named.code) or _further_on(case, found) or _by_library(found, named)
    unseen = unseen or ("" if seen else _one_of_several(case, found, branch))
    return (Confidence.LIKELY, f"{sure}; {unseen}") if unseen else (confidence, sure)


def _is_proved(case: Case, found: Blame[Explanation], outcome: Outcome) -> bool:
    """True if the evidence points to the blamed ranks alone, and nothing that is alive can end the wait. Of ranks whose
    calls show that they alone made one under a test of the rank, of those whose key alone the store lacks, and of those
    who alone could make a call that an answer waits for, that is who they are."""
    unsure = found.alternatives or case.hidden or outcome != Outcome.HANG or isinstance(found.found, Supposed)
    if unsure or not (found.proved or will_never_go_on(case, found)):
        return False
    said = found.diverged
    if said is not None and crossed_before(said.alignment) is not None:
        return False
    point = said.branch_point if said is not None and not said.alignment.history.inferred else None
    shown = isinstance(found.found, UnsetKey | MissingRequest) or (point is not None and point.rank_like)
    return _points_to_them(case, found, LIKELY if shown else CERTAIN)


def _is_one_of_few_sides(case: Case, found: Blame[Explanation]) -> bool:
    """True if the evidence points to one of the sides that calls and waits leave. All ranks have to be seen, and others
    to measure them by: ranks of no side, or, by what all have called, more than are blamed. Where two ranks are all
    that there is, each is the other's only measure; stacks alone do not say whether the many are at one thing."""
    seen = len(case.activities)
    sides = {rank for side in (found.culprits, *found.alternatives) for rank in side}
    by_calls = all(rank in case.programs for rank in case.seen)
    compared = seen > len(sides) or (by_calls and seen > 2 * len(found.culprits))
    known = compared and not case.hidden and seen >= (case.job.world_size or 0)
    weighed = isinstance(found.found, Supposed)  # how sure the same evidence is of them has been said
    return bool(found.alternatives) and known and not weighed and _points_to_them(case, found, POINTED)


def _points_to_them(case: Case, found: Blame[Explanation], needed: float) -> bool:
    """True if the evidence as a whole gives the blamed ranks that share, 0 to 1."""
    likeliest = next(iter(hypotheses(case, found)), None)
    return likeliest is not None and {*likeliest.culprits} == {*found.culprits} and likeliest.share >= needed


def _as_recorded(case: Case, found: Blame[Explanation], branch: Branch) -> str:
    """How the condition is recorded to have come out on the culprits, and on no other rank; '' where it is not.

    Examples: "`if bad:` is recorded to have come out on rank 1 as never before", or, of a test that came out so there
    each time, "`if bad:` is recorded to have been True on rank 1 alone".
    """
    at, who = branch.moment, ranks_text(found.culprits)
    came = f"`{branch.condition}` is recorded to have"
    if at is not None and at.alone and {*at.ranks} == {*found.culprits} and at.value != ENDED:
        return f"{came} come out on {who} as never before"
    if isinstance(found.found, OutsideWait):
        return ""  # what is so there once or always may be no more than its part
    test = branch.file, branch.line, branch.condition
    if branch.kind != "loop" and case.execution.is_new(test, found.culprits, others_of(case, found)):
        odd = odd_in_spectra(case, Sides(found.culprits, others_of(case, found)))
        if odd is not None and (odd.file, odd.line) != (branch.file, branch.line):
            return ""
        return f"{came} come out otherwise on {who} once, and on no other rank"
    key = condition_key(*test)
    value = apart(case.table, case.execution, key, case.ranks, found.culprits)
    return f"{came} {'ended' if value == ENDED else f'been {value}'} on {who} alone" if value else ""


# One branch for each reason to be less sure.
def _of_the_blame(case: Case, found: Blame[Explanation], outcome: Outcome, doubt: str) -> tuple[Confidence, str]:
    """As ``how_sure``, before it is asked what may lie after the condition."""
    confidence, sure = found.confidence, found.sure
    unproved = outcome == Outcome.HANG and not found.proved
    if confidence == Confidence.CERTAIN and (unproved or doubt):
        confidence = Confidence.LIKELY
    if confidence == Confidence.CERTAIN and case.streams and _lacks_the_past(case, found):
        confidence, sure = Confidence.LIKELY, f"{sure}; the calls that completed before were not seen"
    if _is_pasted(case) and not case.has_history:
        confidence = Confidence.LIKELY if confidence == Confidence.CERTAIN else confidence
        if isinstance(found.found, Nothing):
            confidence, sure = Confidence.POSSIBLE, "what they wait in could not be seen"
        elif _asks_somebody(case, found):
            confidence, sure = Confidence.POSSIBLE, f"{sure}; who is to answer it was not seen"
    sure += f"; {doubt}" if doubt else ""
    if any(note.what == MOMENT for note in case.job.unavailable):
        confidence, sure = _as_looked_at_apart(case, confidence), f"{sure}; the hosts were looked at minutes apart"
    waited = unproved and case.activities and case.job.stalled_for and not will_never_go_on(case, found)
    return confidence, sure + (f"; waited {name_duration(case.job.stalled_for)} for it" if waited else "")


def _is_pasted(case: Case) -> bool:
    """True if ranks were seen by pasted stacks alone: one look at each, at moments that nobody knows."""
    return any(rank.process is not None and is_pasted(rank.process) for rank in case.ranks.values())


def _asks_somebody(case: Case, found: Blame[Explanation]) -> bool:
    """True if a culprit waits for an answer, which may be another rank's to give."""
    outside = isinstance(found.found, OutsideWait)
    return outside and any(
        case.activities[r].kind in (ActivityKind.REMOTE_CALL, ActivityKind.IO) for r in found.culprits
    )


def _further_on(case: Case, found: Blame[Explanation]) -> str:
    """What to say of a verdict that would be certain where something after the condition may have parted the sides; ''
    where nothing is on the way."""
    said = found.diverged
    if said is None:
        return ""
    further = further_on(case, said.gap, said.branch_point, (found.culprits, others_of(case, found)))
    if further.unread is not None:
        return f"the source of {plain(further.unread.function)}(), through which they came there, was not read"
    return "which way the library went below it was not seen" if further else ""


def _by_library(found: Blame[Explanation], named: Finding) -> str:
    """What to say where a library's own condition is all that is said to have parted the sides, and neither a value
    nor what is known of such conditions supports it; '' for any other. A loop over data, or until a trainer is told to
    stop, is known to end early.

    Examples: `if self.pending:` in a library's queue → a doubt; `while not self.should_terminate:` of ignite → ''.
    """
    point = found.diverged.branch_point if found.diverged is not None else None
    if point is None or not point.of_library or named.decided_at is not None:
        return ""
    if point.differs or point.seen or point.rank_like or point.quiet or point.guard.kind == "try":
        return ""
    tested = {name.rpartition(".")[2] for name in point.guard.names}
    known = tested & set(names("trainer_stop_flag")) or pattern("goes_over_data").search(point.guard.condition)
    return "" if point.uneven and known else "which way the library went there was not seen"


def _one_of_several(case: Case, found: Blame[Explanation], branch: Branch | None) -> str:
    """What to say where other conditions lie between the sides, and nothing shows that this one parted them; ''."""
    point = found.diverged.branch_point if found.diverged is not None else None
    if point is None or point.sole or is_telling(point) or point.seen or point.guard.kind == "decorator":
        return ""
    if branch is not None and case.execution and (branch.file, branch.line) == (point.file, point.guard.line):
        key = condition_key(branch.file, branch.line, branch.condition)
        sides = found.culprits, others_of(case, found)
        led, kept = (came_last(case.table, case.execution, key, sides[n]) for n in (point.guarded, 1 - point.guarded))
        if led is not None and kept is not None and led[0] == str(point.guard.taken) != kept[0] and led[1] == kept[1]:
            return ""  # recorded in one round
    return "which of the conditions between them parted them was not seen"


def _lacks_the_past(case: Case, found: Blame[Explanation]) -> bool:
    """True if the dumps that the ranks of a job left leave out what completed before the calls differ."""
    return found.diverged is not None and lacks_the_past(case, found.diverged.alignment.history)


def _as_looked_at_apart(case: Case, confidence: Confidence) -> Confidence:
    """What differs between hosts may have moved between the looks at them, all the more if something still moves."""
    if any(activity.moving for activity in case.activities.values()):
        return Confidence.POSSIBLE
    return Confidence.LIKELY if confidence == Confidence.CERTAIN else confidence
