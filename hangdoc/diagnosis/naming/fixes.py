"""What to do: for each code one sentence about this code, where its premise was seen."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from hangdoc.diagnosis.causes.locked import IN_ONE_ORDER
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.execution.outcomes import RECORDER
from hangdoc.diagnosis.frames.landmarks import advice
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.kept import IN_A_THREAD, is_circle_of_locks, let_go
from hangdoc.diagnosis.naming.owing import lines_of, names_lines
from hangdoc.diagnosis.naming.parting import Parting
from hangdoc.diagnosis.program.items import LOOPS, Definition, Predicate
from hangdoc.diagnosis.reason.judged import line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.state.endings import is_echo
from hangdoc.model.kinds import GONE, MESSAGES
from hangdoc.model.message import Condition, Message, Ranks


def fix_of(facts: Facts, code: str) -> Message:
    """'let every rank make the call at train.py:44, or none'; '' where nothing that was seen says what to do."""
    if facts.task is not None:
        return IN_A_THREAD
    if facts.form.kind == FormKind.MISSED:
        return _wait(facts)
    known = _FIXES[code](facts) if code in _FIXES else ""
    return known or (_wait(facts) if facts.form.kind == FormKind.BUSY else "")


def condition(facts: Facts, item: Predicate | Definition) -> Condition:
    """'`if loss > limit:` (train.py:41)'."""
    return Condition(line_of_item(facts.case, item).strip(), item.file, item.line)


def _every_rank(facts: Facts) -> Message:
    call, test = facts.odd, facts.decides
    if call is None or call.frame is None:
        return ""
    alike: Message = (
        [", or make ", condition(facts, test), " come out alike on all of them"] if test is not None else ""
    )
    return ["let every rank make the call at ", line_of(call.frame), ", or none", alike]


def _library(facts: Facts) -> Message:
    call = facts.odd
    if call is None or call.frame is None:
        return ""
    if _in_one_line(facts):
        return "see which of the calls below that line some ranks make, and others do not"
    known = advice(call.stack)
    return ["let every rank run ", line_of(call.frame), f", or none{f' ({known})' if known else ''}"]


def _in_one_line(facts: Facts) -> bool:
    mine, theirs = ([(f.file, f.line) for f in user_stack(stack)] for stack in facts.stacks)
    return mine == theirs


def _rounds(facts: Facts) -> Message:
    loop, test = facts.parted.loop, facts.decides
    if loop is not None and loop.kind in LOOPS and (test is None or test.kind in LOOPS):
        return ["give every rank as many rounds of ", condition(facts, loop), " (agree on the number before)"]
    ends = test or loop
    if ends is None:
        return ""
    return ["let all ranks agree on ", condition(facts, ends), " (all_reduce what it tests before anyone acts on it)"]


def _exception(facts: Facts) -> Message:
    if facts.parted.how != Parting.EXCEPTION:
        return ""
    return "let the exception end the process, or make all ranks agree on it (all_reduce a flag) before anyone goes on"


def _wait(facts: Facts) -> Message:
    """Where to look: what gives the thing that is waited for, and the line of the wait."""
    waiting, missed = facts.unmet, facts.missed
    if facts.kept is not None:
        return let_go(facts.kept)
    if is_circle_of_locks(facts):
        return IN_ONE_ORDER
    if waiting is None or waiting.where is None:
        return ""
    line = line_of(waiting.where)
    timeout: Message = [", and give the wait at ", line, " a timeout"]
    if missed is None or not names_lines(missed):
        return ["look at what is to end the wait at ", line, ", and give it a timeout"]
    item = facts.reason.item if facts.reason is not None and facts.reason.source == RECORDER else None
    if isinstance(item, Predicate) and item.kind not in LOOPS and facts.leads_to_it(item):
        way: Message = [" whichever way ", condition(facts, item), " goes"]
        return ["let ", Ranks(facts.culprits), " end that wait", way, timeout]
    if facts.is_misnamed:
        return ["compare the key that ", lines_of(missed), " sets, and its store, with what is waited for at ", line]
    if facts.kept_away is not None:
        test = condition(facts, facts.kept_away[0])
        return ["let ", Ranks(facts.culprits), " end that wait whichever way ", test, " goes", timeout]
    return ["look at which ways lead past ", lines_of(missed), timeout]


def _messages(facts: Facts) -> Message:
    owes, reason = facts.owes, facts.reason
    if owes is not None and owes.where is not None:
        sent: Message = [" come to the message that is waited for at ", line_of(owes.where)]
        way: Message = ""
        if reason is not None and reason.strength == Strength.PROVED:
            way = [" whichever way ", condition(facts, reason.item), " goes"]
        return ["let ", Ranks(facts.culprits), sent, way, ", or let ", Ranks(owes.waiting), " know that none comes"]
    waiting = facts.owed if facts.owed is not None and facts.owed.kind in MESSAGES else facts.own
    if waiting is None or waiting.where is None:
        return ""
    return ["compare how often, to whom and with which tag both sides communicate at ", line_of(waiting.where)]


def _end(facts: Facts) -> Message:
    ends = [facts.case.ranks[rank].exit for rank in facts.culprits]
    failed = any(end is not None and (end.exception or end.status) for end in ends)
    if not failed:
        return "let every rank make the calls that the others make before it ends"
    others = [facts.case.activities[rank] for rank in facts.others]
    lost = [facts.case.ranks[each.rank].exit for each in others]
    if others and all(end is not None and is_echo(end) for end in lost):
        return "mend that failure; the others failed because it was gone"
    waits = bool(others) and not any(each.kind in GONE for each in others)
    return f"mend that failure{'; the others only wait for it' if waits else ''}"


def _of_signal(facts: Facts) -> Message:
    """A fault of the process itself raises some signals; others are sent."""
    ends = [facts.case.ranks[rank].exit for rank in facts.culprits]
    if not any(end is not None and end.fatal_signal in _OF_FAULTS for end in ends):
        return "find out who sent the signal: `dmesg` shows out-of-memory kills, the scheduler's log its own"
    if any(end is not None and end.stack for end in ends):
        return "see what native code that line runs, and what it was given"
    return "have Python write the line at which it ends (PYTHONFAULTHANDLER=1), and see what native code that line runs"


_OF_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def _always(text: str) -> Callable[[Facts], Message]:
    return lambda _: text


_FIXES: Mapping[str, Callable[[Facts], Message]] = {
    "HD101": _every_rank,
    "HD102": _rounds,
    "HD103": _exception,
    "HD104": _always("give every rank tensors of the same shape and dtype (pad, or gather the sizes first)"),
    "HD105": _always("pass the same root (src or dst) on every rank"),
    "HD106": _always("make these calls in one order on every rank"),
    "HD107": _always("use the groups in one order on every rank"),
    "HD108": _always("give each thread a process group of its own"),
    "HD109": _library,
    "HD112": _always(
        "never communicate there: set a flag, and act on it in the loop, once all ranks agree on it (all_reduce)"
    ),
    "HD201": _always("let one side receive before it sends, or start both without waiting (isend, irecv)"),
    "HD202": _messages,
    "HD401": _end,
    "HD402": _of_signal,
    "HD703": _always(
        "let what runs in native threads end before Python does: wait for every asynchronous call and its callbacks, "
        "then destroy_process_group()"
    ),
    "HD303": _always("call new_group() for every group on every rank, in one order"),
    "HD305": _wait,
    "HD306": _always(
        "keep RANK and MASTER_PORT out of the environment of what a rank starts, and its program under a main guard"
    ),
    "HD504": _wait,
    "HD505": _wait,
    "HD507": _wait,
    "HD508": _wait,
    "HD509": _wait,
}
"""Code → what to do; '' where its premise was not seen."""
