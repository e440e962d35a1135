"""HD108: collectives of one group that two threads of a rank call."""

from __future__ import annotations

from hangdoc.diagnosis.blame.mixed_threads import MixedThreads
from hangdoc.diagnosis.calls.history import Token, distinct
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import (
    at,
    call_at,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.beside import goes_on_beside
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.landmarks import serves_another_thread
from hangdoc.diagnosis.frames.stacks import same_place
from hangdoc.model.message import Condition, Joined, Message, Ranks, joined, sentence


@cause("HD108", explains=Diverged, order=120)
def two_threads(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD108: two threads of a rank issue on one group; nothing fixes their order."""
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None:
        return None
    group = gap.token.group
    several = [
        rank
        for program, ranks in distinct(case.programs)
        if program.threads(group[0]) > 1 and program.key(group[0]) == group
        for rank in ranks
    ]
    if not several or gap.mine.site == gap.theirs.site or gap.mine.group != gap.theirs.group:
        return None
    either = [goes_on_beside(case.sources, token.stack) for token in (gap.mine, gap.theirs)]
    beside = next((each for each in either if each is not None), None)
    # Both sides make both calls, in another order: a call that never comes is another story.
    if not _overtakes(case, gap.mine, gap.theirs) and not _overtakes(case, gap.theirs, gap.mine):
        return None
    return Finding(
        "HD108",
        sentence(
            [
                ["two threads of ", Ranks.of(several), " communicate on one group, and their order differs "],
                ["between ranks: ", call_at(gap.mine), " is paired with ", call_at(gap.theirs)],
            ]
        ),
        joined(_ANY_ORDER, _decided(beside, blame)),
        _GROUP_OF_ITS_OWN,
        _doubt(case, blame, beside)
        if any(_waits_in_two_threads(case, t) for t in (gap.mine, gap.theirs))
        else _PERHAPS_IN_TURN,
        decided_at=beside,
        reorders=True,
    )


def _doubt(case: Case, blame: Blame[Diverged], beside: Condition | None) -> str:
    """Why it is not certain which rank is to blame; '' where a condition is seen to have gone differently on it."""
    if beside is None:
        return _BY_CHANCE if blame.found.branch_point is None else ""
    return _OTHERWISE


_OTHERWISE = "which way each rank's main thread went was not seen"
_BY_CHANCE = "chance decides on which rank the threads come in the other order"


def _decided(beside: Condition | None, blame: Blame[Explanation]) -> Message:
    """'`if small:` (save.py:68) decides whether the thread is waited for, and may have gone differently on rank 3'."""
    if beside is None:
        return ""
    differs: Message = [", and may have gone differently on ", Ranks(blame.culprits)]
    return [beside, " decides whether the main thread goes on beside the other one", differs]


@cause("HD108", explains=MixedThreads, order=125)
def threads_at_once(case: Case, blame: Blame[MixedThreads]) -> Finding:
    """HD108 without histories: threads of a rank wait in several calls at once, and none completes."""
    calls: list[Message] = [[f"{each.op} in {each.name}", at(each.frame)] for each in blame.found.calls]
    ranks, others = Ranks.of(blame.culprits), Ranks(blame.found.others)
    if blame.found.others:
        first, second = blame.found.calls
        beside = goes_on_beside(case.sources, first.stack)
        waiting: Message = [others, " wait" + ("s" if len(blame.found.others) == 1 else ""), f" in {first.op} alone"]
        return Finding(
            "HD108",
            sentence([["threads of ", ranks, " communicate on one group at once: "], Joined(calls, " and ")], waiting),
            joined(
                [ranks, f" issued {second.op} while the other thread's {first.op} was still to come"],
                _ANY_ORDER,
                _decided(beside, blame),
            ),
            _GROUP_OF_ITS_OWN,
            decided_at=beside,
        )
    return Finding(
        "HD108",
        sentence([["threads of ", ranks, " communicate on one group at once: "], Joined(calls, " and ")]),
        joined("every rank has made these calls, and none completes", _ANY_ORDER),
        _GROUP_OF_ITS_OWN,
    )


_ANY_ORDER = (
    "the calls of two threads reach the group in whatever order the threads run, which differs from rank to rank"
)


_GROUP_OF_ITS_OWN = (
    "give each thread a process group of its own (dist.new_group), or issue all collectives from one thread"
)


_PERHAPS_IN_TURN = "whether one of the threads waits for the other was not seen"


def _waits_in_two_threads(case: Case, call: Token) -> bool:
    """True if two threads of the rank wait in calls of the group at once: then neither waits for the other."""
    program = case.programs.get(call.rank)
    pending = program.pending if program is not None else []
    mine = (t for t in pending if t.group == call.group and not serves_another_thread(t.thread))
    return len({t.thread_id for t in mine} - {0}) > 1


def _is_at_one_line(one: Token, other: Token) -> bool:
    same = one.frame is not None and other.frame is not None and same_place(one.frame, other.frame)
    return same or one.site == other.site


def _overtakes(case: Case, call: Token, other: Token) -> bool:
    """True if another thread of the rank that made ``call`` made ``other``'s call after it. The order of one thread's
    calls is the program's own, and so is that of a thread whose work another waits for.

    Example: thread A made an all_reduce, then thread B a barrier; ``other`` is a barrier from that line → True.
    """
    program = case.programs.get(call.rank)
    if program is None or not call.thread_id or serves_another_thread(call.thread):
        return False
    # Of another thread, the way to the line is another one.
    after = (t for t in program.tokens[max(call.order, 0) + 1 :] if t.op == other.op and _is_at_one_line(t, other))
    return any(t.thread_id not in (0, call.thread_id) and not serves_another_thread(t.thread) for t in after)
