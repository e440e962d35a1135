"""The form of a hypothesis: what these culprits did, or what has happened to them, by what all ranks wait in.

Example: rank 2 waits in barrier #9, ranks 0 and 1 in all_reduce #41, which rank 2 has not issued → misaligned calls,
an insertion of that all_reduce on rank 2.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import Disagreement, disagreement
from hangdoc.diagnosis.calls.alignment import Alignment, Gap, all_repairs
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.hypotheses.forms import EditKind, Form, FormKind
from hangdoc.diagnosis.hypotheses.suspects import Ranks
from hangdoc.diagnosis.needs.need import Need, NeedKind, Reach
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.diagnosis.state.activity import own_store_call
from hangdoc.diagnosis.state.endings import is_echo
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE, MESSAGES, ActivityKind, WaitReason

_STOPPED = frozenset(
    {
        *(ActivityKind.STOPPED, ActivityKind.DEBUGGER, ActivityKind.TERMINAL),
        *(ActivityKind.UNINTERRUPTIBLE, ActivityKind.GIL_HELD),
    }
)
_BY_KIND = {
    ActivityKind.IN_COLLECTIVE: NeedKind.JOIN,
    ActivityKind.SEND: NeedKind.SEND,
    ActivityKind.RECV: NeedKind.RECEIVE,
    ActivityKind.REMOTE_CALL: NeedKind.ANSWER,
    ActivityKind.EVENT_LOOP: NeedKind.EVENT,
    ActivityKind.WAITING_FOR_CHILD: NeedKind.END,
    ActivityKind.WAITING_FOR_WORKER: NeedKind.ITEM,
    ActivityKind.LOCK: NeedKind.EVENT,
    ActivityKind.FILE_LOCK: NeedKind.LOCK,
    ActivityKind.PIPE: NeedKind.ITEM,
    ActivityKind.IO: NeedKind.ITEM,
    ActivityKind.SLEEPING: NeedKind.PREDICATE,
    ActivityKind.SHUTTING_DOWN: NeedKind.END,
}
_EDITS = {"delete": EditKind.DELETE, "insert": EditKind.INSERT}


def formed(case: Case, culprits: Ranks, of_all: Needs) -> Form:
    """What is said of these culprits. () of culprits: nobody's code is to blame."""
    needs = needs_of(case, of_all)
    own = next((needs[rank] for rank in culprits if rank in needs), None)
    owed = _owed(culprits, needs)
    if not culprits:
        return Form(_without_culprits(case), need=next(iter(needs.values()), None))
    kinds = {case.activities[rank].kind for rank in culprits if rank in case.activities}
    gap = gap_of_calls(case, culprits)
    edit = EditKind.NONE if gap is None else _EDITS[gap.kind]
    found = _argument(case, culprits) if gap is None or _same_place(gap) else ""
    if found:
        return Form(FormKind.UNEQUAL, owed, own, edit, gap, argument=found)
    kind = _kind(case, culprits, kinds, owed, own, gap)
    circle = tuple(each for each in NeedKind if any(need.kind == each for need in (own, owed) if need is not None))
    return Form(kind, owed, own, edit, gap, circle=circle if kind == FormKind.CIRCLE else ())


def _kind(
    case: Case, culprits: Ranks, kinds: set[ActivityKind], owed: Need | None, own: Need | None, gap: Gap | None
) -> FormKind:
    if kinds <= {ActivityKind.ABSENT}:
        return FormKind.NEVER_MET
    if kinds <= GONE:
        own_end = gap is None or _is_end(gap) or any(_failed_alone(case, rank) for rank in culprits)
        own_end = own_end or all(aborted_while_leaving(case, rank) for rank in culprits)
        return FormKind.GONE if own_end and not (gap is None and _was_ended(case, culprits)) else FormKind.MISALIGNED
    if kinds & _STOPPED:
        return FormKind.STOPPED
    if own is not None and _meets(own) and gap is None:
        return FormKind.NEVER_MET
    if not kinds <= COMMUNICATING or (own is not None and own.kind == NeedKind.KEY):
        return FormKind.BUSY
    if owed is not None and _meets(owed):
        return FormKind.NEVER_MET
    if owed is not None and owed.kind not in (NeedKind.JOIN, NeedKind.RECEIVE, NeedKind.SEND):
        return FormKind.MISSED
    waiting = set(case.activities) - case.hidden
    if all(case.activities[rank].kind in MESSAGES for rank in waiting) and case.graph.stuck >= waiting:
        return FormKind.CIRCLE
    return FormKind.MISALIGNED


def _same_place(gap: Gap) -> bool:
    """True if both sides made their call at one line: it is the same call."""
    return gap.mine is None or gap.theirs is None or gap.mine.site == gap.theirs.site


def _is_end(gap: Gap) -> bool:
    """True if the program of one side ends where the calls part."""
    return any(token is not None and token.op == END for token in (gap.mine, gap.token))


def aborted_while_leaving(case: Case, rank: int) -> bool:
    """True if native code ended it while Python shut down."""
    end = case.ranks[rank].exit
    return end is not None and end.leaving and end.fatal_signal in (signal.SIGABRT, signal.SIGSEGV)


def _failed_alone(case: Case, rank: int) -> bool:
    """True if it ended with an error that is no echo of another rank's end."""
    end = case.ranks[rank].exit
    return end is not None and bool(end.exception) and not is_echo(end)


def _was_ended(case: Case, culprits: Ranks) -> bool:
    """True if whoever looks after the ranks has ended these, as it does when another one fails."""
    ends = [case.ranks[rank].exit for rank in culprits]
    return case.job.ended and all(end is not None and end.signal == signal.SIGTERM for end in ends)


def _meets(need: Need) -> bool:
    """True if it is that the members of a group come together; of what the program counts itself, others give it."""
    return need.kind == NeedKind.COUNT and need.reach == Reach.RANKS


def needs_of(case: Case, of_all: Needs) -> dict[int, Need]:
    """Rank → what its main thread waits for; of one whose line does not show it, by what it does."""
    found = {}
    for rank, need in of_all.by_rank.items():
        kind = need_of(case.activities[rank])
        if kind is not None and rank not in case.hidden:
            found[rank] = replace(need, kind=kind) if need.kind == NeedKind.OUTSIDE else need
    return found


def need_of(activity: Activity) -> NeedKind | None:
    """The kind of what a rank waits for; None where it is gone, or held."""
    if activity.kind == ActivityKind.STORE_WAIT:
        return NeedKind.KEY if own_store_call(activity.stack) else NeedKind.COUNT
    if activity.reason == WaitReason.SHARED_LOCK:
        return NeedKind.LOCK
    if activity.reason == WaitReason.QUEUE:
        return NeedKind.ITEM
    if activity.kind in (ActivityKind.COMPUTING, ActivityKind.COMPILING):
        return NeedKind.OUTSIDE
    return _BY_KIND.get(activity.kind)


def _owed(culprits: Ranks, needs: Mapping[int, Need]) -> Need | None:
    """The need of the others that says most: one for the culprits before others, and a call of all ranks last, as who
    waits there may wait for those who wait for something else."""
    blamed = {*culprits}
    others = [need for rank, need in needs.items() if rank not in blamed and need.kind != NeedKind.OUTSIDE]
    sets = {id(need.on): need.on for need in others}
    meets = {key: not blamed.isdisjoint(on) for key, on in sets.items()}
    return min(others, key=lambda need: (need.kind == NeedKind.JOIN, not meets[id(need.on)]), default=None)


def _without_culprits(case: Case) -> FormKind:
    if any(need_of(activity) == NeedKind.COUNT for activity in case.activities.values()):
        return FormKind.NEVER_MET
    if not case.activities:
        return FormKind.NEVER_MET
    return FormKind.DEVICE if case.programs or case.cuts else FormKind.UNKNOWN


def _argument(case: Case, culprits: Ranks) -> str:
    """'arguments' or 'root', where the culprits gave another one than others."""
    if case.job.ended and case.gloo_refused and all(has_aborted(case, rank) for rank in culprits):
        return "arguments"
    found: Disagreement | None = disagreement(case, ended=case.job.ended)
    return found.what if found is not None and any({*side} == {*culprits} for side in found.sides) else ""


def has_aborted(case: Case, rank: int) -> bool:
    """True if it was ended by SIGABRT, as gloo ends a rank."""
    end = case.ranks[rank].exit
    return end is not None and end.fatal_signal == signal.SIGABRT


def gap_of_calls(case: Case, culprits: Ranks) -> Gap | None:
    """Where the calls of the sides diverge."""
    found = repair_of(case, culprits)
    return found.first if found is not None else None


def repair_of(case: Case, culprits: Ranks) -> Alignment | None:
    """The smallest repair of a group's calls that lays it to the culprits; None where none does."""
    several = (history for history in case.histories if len(history.members) > 1)
    found = (each for history in several for each in all_repairs(history, case.ended & set(history.members)))
    fitting = [each for each in found if {*each.culprits} == {*culprits} and each.first is not None]
    return min(fitting, key=lambda each: (each.cost, each.when)) if fitting else None
