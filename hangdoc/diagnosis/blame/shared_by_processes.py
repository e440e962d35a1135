"""Ranks wait for something that processes share, and who was to end that wait, or to meet them there, is past it: a
value in shared memory, an event or a barrier of multiprocessing's, which are no calls of the job's groups."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line, has_children, nobody_acts
from hangdoc.diagnosis.blame.unmade_file import is_further_on, ways_past
from hangdoc.diagnosis.blame.unset_key import other_arm
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.loops.way_out import way_out_of
from hangdoc.diagnosis.condition.stack_comparison import in_one_loop, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Site, lines_of, site_of, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.polls import polls_for_file, what_ends_polling
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.shared_values import lines_at, shares_memory, what_changes_value, what_signals
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack
from hangdoc.model.wording import ranks_text

POLLING = (ActivityKind.SLEEPING, ActivityKind.COMPUTING)
"""What a rank does that asks again and again for a value in shared memory."""
SIGNALLED = (ActivityKind.LOCK, ActivityKind.PIPE, ActivityKind.IO)
"""What a rank does that waits for an event, a pipe or a queue between processes."""
_MOST_PLACES = 16
"""Places at which ranks poll, of which each is compared; chosen by hand."""


@dataclass(frozen=True, slots=True)
class Unset(Explanation):
    """``waiting`` poll for a value in shared memory, or wait for a signal between processes; the culprits, who went the
    other way of ``test``, were to set it ``set_at`` that line."""

    waiting: tuple[int, ...]
    set_at: Frame
    test: Condition
    signal: str
    """The method that ends the wait, 'send' of a pipe; '' of a value that they poll."""


@dataclass(frozen=True, slots=True)
class PassedMeeting(Explanation):
    """``waiting`` are in a barrier between processes, or ``polled`` until all have come; the culprits are past it, and
    have not met them there."""

    waiting: tuple[int, ...]
    polled: bool = False


@dataclass(frozen=True, slots=True)
class LeftHandover(Explanation):
    """The culprit has left ``loop``, in which ``still`` wait for values in shared memory, and in which it passed such
    values with another rank. ``way_out``: the only condition by which a rank leaves it early."""

    still: tuple[int, ...]
    loop: Condition
    way_out: Condition | None


def left_handover(case: Case) -> Blame[LeftHandover] | None:
    """The blame of the only rank that waits in a collective, where all others poll shared memory at several lines: some
    of them in a loop that it has run and left.

    Example: rank 0 polls for room in `ring.push(row)`, ranks 1 and 2 poll for rows in `for step in range(rounds): ⏎
    ring.pull()`, and rank 3, which has left that loop by its `break`, is in the all_reduce after it → rank 3.
    """
    polling = [rank for rank, a in sorted(case.activities.items()) if a.kind in POLLING]
    rest = [rank for rank, a in case.activities.items() if a.kind not in POLLING]
    lines = {lines_of(site_of(case.activities[rank].stack))[:1] for rank in polling}
    if len(rest) != 1 or len(lines) < 2 or case.hidden or not shares_memory(case.sources):
        return None
    if case.activities[rest[0]].kind != ActivityKind.IN_COLLECTIVE:
        return None
    found: dict[tuple[str, int], tuple[BranchPoint, list[int]]] = {}
    alike: dict[Site, list[int]] = {}
    for rank in polling:
        alike.setdefault(lines_of(site_of(case.activities[rank].stack)), []).append(rank)
    for ranks in alike.values() if len(alike) <= _MOST_PLACES else ():
        sides = (case.activities[rest[0]].stack, case.activities[ranks[0]].stack)
        points = diverging_guards(case.sources, case.values, sides, ((rest[0],), tuple(ranks)))
        where = case.activities[ranks[0]].where
        loops = [p for p in points if p.uneven and p.guarded == 1 and not p.of_library]
        # The innermost loop is the one that polls.
        loop = next((p for p in loops if where is None or p.function != where.function), None)
        if loop is not None and is_past(case.sources, *sides) == "certainly":
            found.setdefault((loop.file, loop.guard.line), (loop, []))[1].extend(ranks)
    loop, still = max(found.values(), key=lambda each: len(each[1]), default=(None, []))
    if loop is None or any(other is not still and len(other) >= len(still) for _, other in found.values()):
        return None  # it may be any of these loops that it was in
    out = way_out_of(case, loop)
    way_out = Condition(out.guard.condition, out.file, out.guard.line) if out is not None else None
    explained = LeftHandover(tuple(sorted(still)), Condition(loop.guard.condition, loop.file, loop.guard.line), way_out)
    sure = f"all others are still in their loops, and rank {rest[0]} has left its own"
    return Blame(explained, (rest[0],), confidence=Confidence.LIKELY, sure=sure)


def unset_by_the_other_arm(case: Case) -> Blame[Unset] | None:
    """The blame of the ranks that went the way on which a shared value, or an event, is set, and are past it.

    Example: ranks 1 to 3 poll `while page.version() < step:` in the `else` of `if rank == 0: ⏎ page.publish(step) ⏎
    else: ⏎ page.wait_for(step)`, and publish() writes under `if changed:`; rank 0 waits for them in the barrier behind
    it → rank 0.
    """
    asleep = tuple(r for r, a in sorted(case.activities.items()) if a.kind in (*POLLING, *SIGNALLED))
    others = tuple(sorted(set(case.activities) - set(asleep)))
    if not 0 < len(others) <= len(asleep) or case.hidden or not at_one_line(case, asleep):
        return None
    stack, kind = case.activities[asleep[0]].stack, case.activities[asleep[0]].kind
    signal = what_signals(case.sources, stack) if kind in SIGNALLED else None
    set_at = signal[0] if signal is not None else what_changes_value(case.sources, stack) if kind in POLLING else None
    if set_at is None or not all(is_further_on(case, rank, asleep) for rank in others):
        return None
    sets = lines_at(set_at)
    found = next((each for frame in stack if (each := other_arm(case.sources, frame, sets))), None)
    if found is None or found[0].file != set_at.file or not ways_past(case.sources, set_at, found[1]):
        return None
    sure = f"{ranks_text(others)} alone went the way on which it is set, as far as the source shows"
    explained = Unset(asleep, set_at, found[1], signal[1] if signal is not None else "")
    proved = signal is not None and nobody_acts(case, asleep)
    return Blame(explained, others, proved=proved, confidence=Confidence.LIKELY, sure=sure)


def passed_meeting(case: Case) -> Blame[PassedMeeting] | None:
    """The blame of the ranks that are past a meeting of processes in which the others wait, and wait for these: a
    barrier, or a loop that polls until all have done what each does before it.

    Examples: `if not rows: ⏎ return ⏎ self.barrier.wait()`, and `with count: ⏎ count.value += 1 ⏎ while count.value <
    world: ⏎ sleep(0.1)`: ranks 0, 1 and 3 are in the last line, rank 2 in the all_reduce that follows → rank 2. As
    many on either side: only possibly.
    """
    waiting = tuple(r for r, a in sorted(case.activities.items()) if _meets_processes(case, r) or a.kind in POLLING)
    others = tuple(sorted(set(case.activities) - set(waiting)))
    if not waiting or not others or case.hidden or not at_one_line(case, waiting):
        return None
    stack = case.activities[waiting[0]].stack
    polled = not _meets_processes(case, waiting[0])
    if polled and (len(others) >= len(waiting) or not _adds_its_part(case.sources, stack)):
        return None
    if not polled and any(has_children(case, rank) for rank in waiting):
        return None  # with these it may meet there
    if not all(is_past_them(case, rank, waiting[0]) for rank in others):
        return None
    few, many = sorted((others, waiting), key=len)
    even = len(few) == len(many)
    there_and_not = f"{ranks_text(waiting)} {'waits' if len(waiting) == 1 else 'wait'} there, and {ranks_text(others)}"
    return Blame(
        PassedMeeting(waiting, polled),
        others if even else few,
        (waiting,) if even else (),
        proved=not polled and nobody_acts(case, waiting),
        confidence=Confidence.POSSIBLE if even else Confidence.LIKELY,
        sure=f"{there_and_not} did not come",
    )


def is_past_them(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank has ended, or waits in a call behind the line at which the other one waits; where both are in
    one loop, for that one."""
    mine, theirs = case.activities[rank], case.activities[waiting]
    if mine.kind not in COMMUNICATING:
        return mine.kind in GONE
    past = is_past(case.sources, mine.stack, theirs.stack)
    ahead = waiting in case.graph.on(rank)
    return past == "certainly" or (ahead and (past == "perhaps" or in_one_loop(case.sources, mine.stack, theirs.stack)))


def _adds_its_part(sources: Sources, stack: Stack) -> bool:
    """True if who polls has done before, in the same functions, what the loop waits for: a part of what all do."""
    where = next(iter(user_stack(stack)), None)
    one_file = where is None or polls_for_file(sources, where)
    ending = what_ends_polling(sources, stack) if not one_file else None
    at = what_changes_value(sources, stack) or (ending.at if ending is not None and not ending.removes else None)
    return at is not None and any(leads_to(sources, frame, at) for frame in user_stack(stack))


def leads_to(sources: Sources, frame: Frame, at: Frame) -> bool:
    """True if a line of the frame's function, before the frame's own and not in another arm, is ``at`` or calls the
    function around it."""
    tree = sources.function(frame.file, frame.line)
    if tree is None:
        return False
    if (frame.file, frame.function.rpartition(".")[2]) == (at.file, at.function):
        return at.line < frame.line
    here = enclosing_function(tree, frame.line)
    lines = [line for line in calls_of(here, at.function) if line < frame.line]
    lines = [line for line in lines if enclosing_function(tree, line) is here]
    met = {(guard.place, guard.taken) for guard in guards(tree, frame.line)}
    return any(all((g.place, g.taken) in met for g in guards(tree, line) if g.kind == "if") for line in lines)


def _meets_processes(case: Case, rank: int) -> bool:
    """True if the rank is in a barrier that processes share: threading's, upon a condition of multiprocessing's."""
    below = below_user(case.activities[rank].stack)
    meets = any(plain(f.function) in names("in_barrier") and f.file.endswith("/threading.py") for f in below)
    return meets and any(f.file.endswith(names("process_lock_file")) for f in below)
