"""Form → code of the catalogue. What each code means stands in model/causes.toml; here is by which facts it is told.

One table for each form: the first row whose test fits names the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.parting import Parting
from hangdoc.diagnosis.naming.waits import Wait, is_shutting_down, wait_of
from hangdoc.model.kinds import MESSAGES, ActivityKind, WaitReason

Test = Callable[[Facts], bool]

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


def _by_wait(facts: Facts) -> str:
    activity = facts.owed if facts.form.kind == FormKind.MISSED else facts.own
    if activity is None or facts.form.kind not in _NAMED_BY_WAIT:
        return ""
    kind, reason = wait_of(facts.case, facts.program, activity)
    return BY_WAIT.get((kind, reason)) or BY_WAIT.get((kind, None), "")


_NAMED_BY_WAIT = (FormKind.BUSY, FormKind.MISSED, FormKind.STOPPED)


def _always(facts: Facts) -> bool:
    return True


def _was_signalled(facts: Facts) -> bool:
    ends = [facts.case.ranks[rank].exit for rank in facts.culprits]
    return any(end is not None and end.fatal_signal for end in ends)


def _makes_groups(facts: Facts) -> bool:
    return any(a is not None and has_role(a.stack, Role.GROUPS) for a in (facts.owed, facts.own))


def _in_messages(facts: Facts) -> bool:
    return any(a is not None and a.kind in MESSAGES for a in (facts.owed, facts.own))


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


TABLE: Mapping[FormKind, tuple[tuple[str, Test], ...]] = {
    FormKind.GONE: (("HD402", _was_signalled), ("HD401", _always)),
    FormKind.STOPPED: (),
    FormKind.UNEQUAL: (("HD105", lambda facts: facts.form.argument == "root"), ("HD104", _always)),
    FormKind.NEVER_MET: (
        ("HD301", lambda facts: facts.own is not None and facts.own.kind == ActivityKind.ABSENT),
        ("HD109", lambda facts: facts.is_implicit),
        ("HD303", _always),
    ),
    FormKind.CIRCLE: (("HD201", _send_to_each_other), ("HD202", _always)),
    FormKind.MISALIGNED: (
        ("HD201", _send_to_each_other),
        ("HD202", _in_messages),
        ("HD103", lambda facts: facts.parting == Parting.EXCEPTION),
        ("HD102", lambda facts: facts.parting in (Parting.LEFT_LOOP, Parting.STAYED_IN_LOOP)),
        ("HD109", lambda facts: facts.is_implicit),
        ("HD101", _always),
    ),
    FormKind.BUSY: (("HD701", _cannot_end),),
    FormKind.MISSED: (("HD102", _asks_no_more),),
    FormKind.DEVICE: (("HD601", lambda facts: bool(facts.case.cuts)), ("HD602", _always)),
    FormKind.UNKNOWN: (),
}
