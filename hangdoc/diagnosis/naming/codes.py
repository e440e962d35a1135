"""Form → code of the catalogue. What each code means stands in model/causes.toml; here is by which facts it is told.

One table for each form: the first row whose test fits names the code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hangdoc.diagnosis.frames.landmarks import below_user, is_distributed, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.hypotheses.formed import aborted_while_leaving
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.parting import Parting
from hangdoc.diagnosis.naming.waits import Wait, is_shutting_down, wait_of
from hangdoc.diagnosis.needs.need import NeedKind
from hangdoc.diagnosis.state.process import calls_of_threads, descendants
from hangdoc.model.kinds import MESSAGES, ActivityKind, WaitReason

Test = Callable[[Facts], bool]

_ANY: Test = bool
BY_WAIT: Mapping[Wait, str] = {
    (ActivityKind.LOCK, WaitReason.SHARED_LOCK): "HD504",
    (ActivityKind.PIPE, WaitReason.QUEUE): "HD509",
    (ActivityKind.PIPE, WaitReason.TASK): "HD505",
    (ActivityKind.IO, WaitReason.SIGNAL): "HD508",
    (ActivityKind.LOCK, None): "HD505",
    (ActivityKind.EVENT_LOOP, None): "HD505",
    (ActivityKind.REMOTE_CALL, None): "HD505",
    (ActivityKind.FILE_LOCK, None): "HD504",
    (ActivityKind.PIPE, None): "HD507",
    (ActivityKind.IO, None): "HD507",
    (ActivityKind.SLEEPING, None): "HD508",
    (ActivityKind.COMPUTING, None): "HD501",
    (ActivityKind.COMPILING, None): "HD502",
    (ActivityKind.WAITING_FOR_WORKER, None): "HD503",
    (ActivityKind.WAITING_FOR_CHILD, None): "HD509",
    (ActivityKind.SHUTTING_DOWN, None): "HD701",
    (ActivityKind.STORE_WAIT, None): "HD305",
    (ActivityKind.STOPPED, None): "HD403",
    (ActivityKind.UNINTERRUPTIBLE, None): "HD404",
    (ActivityKind.TERMINAL, None): "HD405",
    (ActivityKind.DEBUGGER, None): "HD405",
    (ActivityKind.GIL_HELD, None): "HD506",
}
"""What a rank waits in → the code of a wait there that does not end."""


def code_of(facts: Facts) -> str:
    """The code; '' where no row fits."""
    return next((code for code, test in TABLE[facts.form.kind] if test(facts)), "") or _by_wait(facts)


def is_one_of(facts: Facts, codes: Collection[str]) -> bool:
    """True if the code is one of these, which no wait has: rows after theirs are not asked."""
    rows = TABLE[facts.form.kind]
    last = max((at for at, (code, _) in enumerate(rows, 1) if code in codes), default=0)
    return next((code for code, test in rows[:last] if test(facts)), "") in codes


def _by_wait(facts: Facts) -> str:
    activity = facts.unmet
    if activity is None or facts.form.kind not in _NAMED_BY_WAIT:
        return ""
    kind, reason = wait_of(facts.case, facts.program, activity)
    seen = facts.needs.seen(activity.rank)
    if kind == ActivityKind.SLEEPING and seen is not None and seen.resource.need == NeedKind.LOCK:
        kind = ActivityKind.FILE_LOCK
    return BY_WAIT.get((kind, reason)) or BY_WAIT.get((kind, None), "")


_NAMED_BY_WAIT = (FormKind.BUSY, FormKind.MISSED, FormKind.STOPPED)


def _was_signalled(facts: Facts) -> bool:
    ends = [facts.case.ranks[rank].exit for rank in facts.culprits]
    return any(end is not None and end.fatal_signal for end in ends)


def _was_leaving(facts: Facts) -> bool:
    """Its program was over, and native code ended it while Python shut down."""
    return all(aborted_while_leaving(facts.case, rank) for rank in facts.culprits)


def _in_messages(facts: Facts) -> bool:
    return facts.gap is None and any(a is not None and a.kind in MESSAGES for a in (facts.owed, facts.own))


def _send_to_each_other(facts: Facts) -> bool:
    """Each of the culprits waits in a message for another of them, and one in a send."""
    graph, kinds = facts.case.graph, [facts.case.activities[rank].kind for rank in facts.culprits]
    among = all(graph.on(rank) & {*facts.culprits} for rank in facts.culprits)
    return among and set(kinds) <= MESSAGES and ActivityKind.SEND in kinds


def _cannot_end(facts: Facts) -> bool:
    return facts.own is not None and is_shutting_down(facts.case, facts.own)


def _asks_no_more(facts: Facts) -> bool:
    """The others wait for answers that a rank which is not to blame holds back until there are more requests."""
    chains = (facts.case.chains.get(rank) for rank in facts.others)
    servers = {chain.last.rank for chain in chains if chain is not None}
    return facts.owed is not None and facts.owed.kind == ActivityKind.REMOTE_CALL and not servers & {*facts.culprits}


def _two_threads_call(facts: Facts) -> bool:
    """Two threads of a culprit are in calls."""
    return any(len(calls_of_threads(facts.case.ranks[rank].process)) > 1 for rank in facts.culprits)


def _child_has_joined(facts: Facts) -> bool:
    """A process that the culprit has started is in torch.distributed."""
    process = facts.case.ranks[facts.culprits[0]].process
    looks = (each.last for each in descendants(process)) if process is not None else ()
    mains = (look.main for look in looks if look is not None)
    return any(any(map(is_distributed, below_user(main.frames))) for main in mains if main is not None)


def _all_join_the_job(facts: Facts) -> bool:
    """All ranks that live wait in init_process_group(), or have given up there."""
    waiting = [facts.case.activities[rank] for rank in facts.case.graph.stuck] or list(facts.case.activities.values())
    return all(
        any(plain(frame.function) in names("joins_job") for frame in activity.stack)
        for activity in waiting
        if activity.kind != ActivityKind.EXITED
    )


def _in_other_groups(facts: Facts) -> bool:
    """Both sides are in calls that all ranks make, of another group each."""
    own, owed = facts.own, facts.owed
    if facts.parted.how != Parting.ARMS or facts.gap is not None or facts.is_implicit or own is None or owed is None:
        return False
    known = own.kind == owed.kind == ActivityKind.IN_COLLECTIVE and own.group and owed.group
    return bool(known) and (own.group, own.members) != (
        owed.group,
        owed.members,
    )


TABLE: Mapping[FormKind, tuple[tuple[str, Test], ...]] = {
    FormKind.GONE: (("HD703", _was_leaving), ("HD402", _was_signalled), ("HD401", _ANY)),
    FormKind.STOPPED: (),
    FormKind.UNEQUAL: (("HD105", lambda facts: facts.form.argument == "root"), ("HD104", _ANY)),
    FormKind.NEVER_MET: (
        ("HD301", lambda facts: facts.own is not None and facts.own.kind == ActivityKind.ABSENT),
        ("HD304", lambda facts: not facts.case.activities),
        ("HD302", _all_join_the_job),
        ("HD109", lambda facts: facts.is_implicit),
        ("HD303", _ANY),
    ),
    FormKind.CIRCLE: (("HD201", _send_to_each_other), ("HD202", _ANY)),
    FormKind.MISALIGNED: (
        ("HD201", _send_to_each_other),
        ("HD202", _in_messages),
        ("HD108", _two_threads_call),
        ("HD112", lambda facts: facts.handler is not None),
        ("HD107", _in_other_groups),
        ("HD106", lambda facts: facts.parted.how == Parting.ARMS and facts.gap is not None),
        ("HD103", lambda facts: facts.parted.how == Parting.EXCEPTION),
        ("HD102", lambda facts: facts.parted.how in (Parting.LEFT_LOOP, Parting.STAYED_IN_LOOP)),
        ("HD109", lambda facts: facts.is_implicit),
        ("HD101", _ANY),
    ),
    FormKind.BUSY: (("HD306", _child_has_joined), ("HD701", _cannot_end)),
    FormKind.MISSED: (("HD102", _asks_no_more),),
    FormKind.DEVICE: (("HD601", lambda facts: bool(facts.case.cuts)), ("HD602", _ANY)),
    FormKind.UNKNOWN: (),
}
