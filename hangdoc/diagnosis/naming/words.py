"""What is said of a hypothesis: who did what and where the others wait, what decided, and what to do.

Each sentence is made from slots: ranks, calls, lines, the test, the need. A clause whose evidence is not there is not
said, nor is a fix whose premise was not seen.

Example: 'Rank 2 skips the all_reduce at train.py:44 and waits in barrier at train.py:61; ranks 0 and 1 wait in
all_reduce at train.py:44.'
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.phrases import (
    at,
    call_at,
    line_of,
    place,
    waiting_at,
    what_a_library_does,
    where_they_wait,
)
from hangdoc.diagnosis.execution.outcomes import RECORDER
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.naming.codes import code_of
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.fixes import condition, fix_of
from hangdoc.diagnosis.naming.kept import lock_waited_for, why_blocked, why_kept
from hangdoc.diagnosis.naming.owing import is_sure, lines_shown, names_lines, not_given, provided_at
from hangdoc.diagnosis.naming.parting import Parting
from hangdoc.diagnosis.naming.passed import passed
from hangdoc.diagnosis.needs.identity import Apart
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.reason.judged import WORTH_A_LOOK
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.state.endings import is_echo, origin, own_words
from hangdoc.diagnosis.state.process import calls_of_threads
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE, MESSAGES, ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Verb, conditions_in, joined, sentence
from hangdoc.model.process import Frame
from hangdoc.model.wording import reads_as_state, single_spaced


@dataclass(frozen=True, slots=True)
class Told:
    """A code, '' without a name, and the sentences: ``why`` and ``fix`` say nothing where there is nothing to say."""

    code: str
    verdict: Message
    why: Message
    fix: Message
    doubt: str = ""
    shown: tuple[tuple[Frame, Message], ...] = ()
    """The lines of the wait, and those that would end it."""
    decided_at: Condition | None = None
    """The test that the recorders show to have come out otherwise."""


def told(facts: Facts) -> Told:
    """What is said of one hypothesis."""
    code, missed = code_of(facts), facts.missed
    if _are_alike(facts):
        differs: Message = ["what was seen of ", Ranks(facts.culprits), " differs from the others"]
        verdict = sentence(where_they_wait(facts.case, tuple(sorted(facts.case.seen))), differs)
    else:
        what = _BY_CODE.get(code, _BY_FORM.get(facts.form.kind, _standing))(facts)
        told_of = facts.owes.waiting if facts.owes is not None else ()
        rest = tuple(rank for rank in facts.others if rank not in told_of and not _followed(facts, rank))
        verdict = sentence(what, where_they_wait(facts.case, rest))
    kept, task = facts.kept, facts.task
    given = provided_at(missed) if missed is not None and task is None else ""
    counted = passed(facts) if facts.is_of_messages else ""
    of_call = joined(_by_library(facts, code), _at_its_own_time(facts, code), _how_it_ended(facts, code))
    why = joined(counted, of_call, given)
    item = facts.reason.item if facts.reason is not None else None
    in_threads = code == "HD108" and isinstance(item, Predicate) and item.kind == "for"  # which all threads go round
    if code not in _BY_A_SIGNAL and not in_threads:
        known = joined(why_kept(kept) if kept else "", why_blocked(facts, task) if task else "")
        likely = "" if (kept or task) and not _is_seen(facts) else _why(facts)
        why = joined(why, _holding(facts), known, likely)
    return Told(
        code,
        verdict,
        why,
        fix_of(facts, code),
        _DOUBTS.get(code, ""),
        lines_shown(missed) if missed is not None else (),
        _recorded(facts) if code not in _BY_A_SIGNAL and not in_threads else None,
    )


def _followed(facts: Facts, rank: int) -> bool:
    """True if the rank failed because a culprit that had failed by itself was gone, or the launcher ended it then."""
    end, first = facts.case.ranks[rank].exit, facts.case.ranks[facts.culprits[0]].exit
    if facts.form.kind != FormKind.GONE or end is None or first is None or first.signal:
        return False
    return (bool(first.exception) and is_echo(end)) or (bool(first.status) and end.signal == signal.SIGTERM)


def _is_seen(facts: Facts) -> bool:
    return facts.reason is not None and facts.reason.strength == Strength.PROVED


def _recorded(facts: Facts) -> Condition | None:
    """The test that the reason is, where the recorders show how it came out on both sides."""
    reason = facts.reason
    if reason is None or not isinstance(reason.item, Predicate) or reason.source != RECORDER:
        return None
    at = condition(facts, reason.item)
    return at if reason.strength == Strength.PROVED and at in conditions_in(_why(facts)) else None


def _are_alike(facts: Facts) -> bool:
    """True if all ranks live, and do the same at one line."""
    if not facts.culprits or not facts.others or facts.form.kind == FormKind.GONE or not facts.at_one_line:
        return False
    return len({each.text for each in facts.case.activities.values()}) == 1


def _how_it_ended(facts: Facts, code: str) -> Message:
    """What the exception says that ended the first culprit, or who sends such signals."""
    end = facts.case.ranks[facts.culprits[0]].exit if facts.culprits else None
    if code == "HD402" and end is not None and end.fatal_signal == signal.SIGKILL:
        return "the kernel's out-of-memory killer sends signal 9, and so do schedulers"
    began = origin(end) if code == "HD401" and end is not None else None
    says = own_words(began) if began is not None else ""
    return f"the {began.exception} says: {says}" if began is not None and says else ""


def _holding(facts: Facts) -> Message:
    """'rank 0 holds what rank 1 waits for' of each culprit that the kernel shows to hold a lock of another's."""
    said: list[Message] = []
    for rank in facts.culprits if len(facts.culprits) > 1 else ():
        holders = tuple(each for each in facts.needs.holders(rank) if each in facts.culprits)
        if holders:
            said.append([Does(holders, "holds", "hold"), " what ", Ranks((rank,)), " waits for"])
    return Joined(said, ", and ") if said else ""


_BY_A_SIGNAL = ("HD402", "HD703")
"""Ends that no test of the program decides."""
_DOUBTS: Mapping[str, str] = {"HD108": "in which order the threads made their calls was not seen"}


def _standing(facts: Facts) -> Message:
    """Where the culprits are, and no word more."""
    return where_they_wait(facts.case, facts.culprits)


def _doing(facts: Facts) -> Message:
    """'rank 1 is waiting on a queue at train.py:9 f()', 'rank 1 waits in recv from rank 0 at …'."""
    own = facts.own
    if own is None or len(facts.culprits) > 1 or own.kind == ActivityKind.EXITED:
        return _standing(facts)
    if facts.kept is not None and (waits := lock_waited_for(facts, facts.kept)):
        return waits
    if own.kind in COMMUNICATING:
        return [Does(facts.culprits, "waits", "wait"), " ", waiting_at(facts.case, (own.rank,))]
    return [Does(facts.culprits, "is", "are"), " ", _state(own), at(own.where)]


def _state(activity: Activity) -> str:
    text = single_spaced(activity.text)
    is_state = activity.kind in GONE or reads_as_state(text) or activity.kind == ActivityKind.UNINTERRUPTIBLE
    return text if is_state else f"in {text}"


def _misaligned(facts: Facts) -> Message:
    """'rank 2 skips the all_reduce at train.py:44 and waits in barrier at train.py:61', or 'rank 2 alone calls …'."""
    culprits, mine, theirs = facts.culprits, facts.mine, facts.theirs
    how, loop = facts.parted.how, facts.parted.loop
    if facts.own is not None and facts.own.kind in MESSAGES:
        return _doing(facts)
    if facts.owes is not None:
        return _missed(facts)
    if how == Parting.STAYED_IN_LOOP and loop is not None:
        left: Message = [Ranks(facts.others), " ", Verb(facts.others, "has", "have"), " left"]
        return [Does(culprits, "is", "are"), " still in ", condition(facts, loop), ", which ", left]
    if facts.skips and theirs is not None and theirs.op != END:
        return [Does(culprits, "skips", "skip"), " the ", call_at(theirs), _now(facts)]
    if not facts.skips and mine is not None and mine.op != END:
        return [Ranks(culprits), " alone ", Verb(culprits, "calls", "call"), " ", call_at(mine)]
    return _doing(facts)


def _now(facts: Facts) -> Message:
    """' and waits in barrier at train.py:61 main()'; '' where it is not in a call."""
    own = facts.own
    if own is None or own.kind not in COMMUNICATING:
        return ""
    return [" and ", Verb(facts.culprits, "waits", "wait"), " ", waiting_at(facts.case, facts.culprits)]


def _missed(facts: Facts) -> Message:
    """'rank 1 has not set go in the store, for which ranks 0 and 2 wait at train.py:9: it waits in barrier at …'."""
    missed, own = facts.owes, facts.own
    if missed is None or own is None:
        return _doing(facts)
    said: Message = [Ranks(facts.culprits), " ", not_given(missed)]
    it: Message = ["it", " "] if len(facts.culprits) == 1 else ["they", " "]
    waits, is_ = Verb(facts.culprits, "waits", "wait"), Verb(facts.culprits, "is", "are")
    if own.kind in COMMUNICATING:
        return [said, ": ", it, waits, " ", waiting_at(facts.case, facts.culprits)]
    return [said, ": ", it, is_, " ", _state(own), at(own.where)]


def _never_met(facts: Facts) -> Message:
    own = facts.own
    if own is None or own.kind == ActivityKind.STORE_WAIT:
        return _standing(facts)
    if own.kind == ActivityKind.ABSENT:
        return [Does(facts.culprits, "has", "have"), " never joined"]
    where = facts.owed.where if facts.owed is not None else None
    come: Message = [Does(facts.culprits, "has", "have"), " not come to ", line_of(where)]
    return joined(come if where is not None else "", _standing(facts))


def _unequal(facts: Facts) -> Message:
    own = facts.own
    if own is None or own.kind not in COMMUNICATING:
        return [_standing(facts), ", in a call to which it gave another size or type than others"]
    what = "root" if facts.form.argument == "root" else "size or type"
    calls: Message = [Does(facts.culprits, "calls", "call"), f" {own.op or single_spaced(own.text)}", at(own.where)]
    return [calls, f" with another {what} than ", Ranks(facts.others)]


def _crossed(facts: Facts) -> Message:
    own, owed = facts.own, facts.owed
    if own is None or owed is None or not own.group or not owed.group:
        return _doing(facts)
    return [_doing(facts), ", in another group than ", Ranks((owed.rank,))]


def _child_joined(facts: Facts) -> Message:
    return [_doing(facts), ", which takes part in calls of the job itself"]


def _two_threads(facts: Facts) -> Message:
    """'two threads of rank 1 are in calls at once, at train.py:51 step() and train.py:29 write()'."""
    calls = calls_of_threads(facts.case.ranks[facts.culprits[0]].process)
    lines = {frame.file + str(frame.line): place(frame) for stack in calls for frame in user_stack(stack)[:1]}
    where: Message = [", at ", Joined(list(lines.values()), " and ")] if len(lines) > 1 else ""
    return ["two threads of ", Ranks(facts.culprits), " are in calls at once", where]


_BY_FORM: Mapping[FormKind, Callable[[Facts], Message]] = {
    FormKind.MISALIGNED: _misaligned,
    FormKind.BUSY: _doing,
    FormKind.STOPPED: _doing,
    FormKind.MISSED: _missed,
    FormKind.NEVER_MET: _never_met,
    FormKind.UNEQUAL: _unequal,
}
_BY_CODE: Mapping[str, Callable[[Facts], Message]] = {
    "HD107": _crossed,
    "HD108": _two_threads,
    "HD306": _child_joined,
}
"""What is said in place of the clause of the form."""


def _by_library(facts: Facts, code: str) -> Message:
    """What a library does there, of a call that does not look like one."""
    token = facts.odd
    if code != "HD109" or token is None:
        return ""
    here: Message = [line_of(token.frame), " does not look like communication, but "] if token.frame is not None else ""
    return [here, what_a_library_does(token), ", and every rank has to take part"]


def _at_its_own_time(facts: Facts, code: str) -> Message:
    handler = facts.handler if code == "HD112" else None
    return [place(handler), " runs when the interpreter chooses, on each rank at another point"] if handler else ""


_WITHOUT_REASON = (FormKind.GONE, FormKind.STOPPED, FormKind.UNEQUAL, FormKind.CIRCLE, FormKind.NEVER_MET)
"""Forms of which the nearest test says nothing, if nothing shows that it differs."""


def _why(facts: Facts) -> Message:
    """What decided, as sure as it is known; '' where nothing is seen to differ and no test is near."""
    reason = facts.reason
    if facts.kept_away is not None and (reason is None or reason.strength < Strength.PROVED):
        kept, outcome = facts.kept_away
        return [condition(facts, kept), f" never {_came_out(outcome)} on ", Ranks(facts.culprits)]
    if reason is None or (reason.strength == Strength.UNKNOWN and facts.form.kind in _WITHOUT_REASON):
        return ""
    if facts.form.kind == FormKind.BUSY and facts.at_one_line and not facts.is_misnamed:
        return ""
    item, (mine, theirs) = reason.item, reason.outcomes
    test, culprits, others = condition(facts, item), Ranks(facts.culprits), Ranks(facts.others)
    if isinstance(item, Definition):
        # A rank differs in any job, and the round among those that pass messages.
        tells = reason.strength > Strength.UNKNOWN and not is_rank_name(item.name) and not facts.is_of_messages
        return ["what ", test, " sets differs between the ranks"] if tells else ""
    if reason.strength == Strength.PROVED and mine and theirs and mine != theirs and not facts.chooses_by_part(item):
        return [test, f" {_came_out(mine)} on ", culprits, f" and {_came_out(theirs)} on ", others]
    came = tuple(rank for rank in facts.others if not facts.case.table.never_asked(item, (rank,)))
    if reason.strength == Strength.PROVED and came and not facts.chooses_by_part(item):
        return [test, " came out differently on ", culprits, " than on ", Ranks(came)]
    if item.kind == "for" and facts.form.kind in (FormKind.BUSY, FormKind.MISSED, FormKind.GONE):
        return ""  # most loops go alike, and these wait for no round of one
    if facts.missed is not None and names_lines(facts.missed) and facts.leads_to_it(item):
        return [test, " decides whether it is" if is_sure(facts.missed) else " may decide whether it is"]
    if facts.is_misnamed and facts.named_by is not None:
        return _named_by(facts.named_by, facts)
    if facts.is_misnamed:
        return ["the name of the key, or its store, may depend on ", test]
    if not reason.direct or reason.share < WORTH_A_LOOK:
        return ""
    if facts.own is not None and facts.own.where is not None and item in facts.polled_at(facts.own.where):
        return [test, " has not ended on ", culprits]
    return ["the nearest test that may have led ", culprits, " there is ", test]


def _named_by(apart: Apart, facts: Facts) -> Message:
    """'`attempt` is 0 on rank 0 and 1 on rank 1, set by …', of what goes into the name of what is missed."""
    values, at = dict(apart.values), apart.definition
    others = tuple(rank for rank in values if rank not in facts.culprits)
    mine, theirs = values[facts.culprits[0]], sorted({values[rank] for rank in others})
    both: Message = [
        f"`{apart.name}` is {mine} on ",
        Ranks(facts.culprits),
        f" and {' or '.join(theirs)} on ",
        Ranks(others),
    ]
    return [both, ", set by ", Condition(at.text, at.file, at.line)]


_CAME_OUT = {"True": "was True", "False": "was False", "round": "went on", "raised": "caught something"}


def _came_out(outcome: str) -> str:
    return _CAME_OUT.get(outcome, outcome)
