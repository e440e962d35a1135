"""A lock that is a file, or a folder, which one rank took and left behind: the others try for it without an end."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.condition.elsewhere.left_behind import is_alike
from hangdoc.diagnosis.condition.stack_comparison import in_one_loop, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, split_at_loop
from hangdoc.diagnosis.source.locks import lets_go, tries_for_new_file
from hangdoc.model.kinds import GONE, ActivityKind, Confidence
from hangdoc.model.process import Frame, OpenFile, Stack
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class LeftLock(Explanation):
    """The culprit is past the line that takes a lock, at which the others still try for it, and no rank holds it."""

    trying: tuple[int, ...]
    taken_at: Frame
    """The line that asks for the lock: the call of the function that tries, or, at the top, the line that does."""


@dataclass(frozen=True, slots=True)
class OlderLock(Explanation):
    """The culprits still try for a lock that is a file; all who are ``past`` that line have found one there at first,
    too, so that none of them made it."""

    past: tuple[int, ...]


def left_lock(case: Case) -> Blame[LeftLock | OlderLock] | None:
    """The blame of the rank that is past the lock which all others that are waited for try to take; None if there is
    none, or the lock is older than the job. Where all who are past it have found it there, those are blamed who try.

    Nobody can create a file that is there: whoever passed that line last has created it, and waits for those who cannot
    pass. Example: rank 1 is in `os.open(path, O_CREAT | O_EXCL)`, in a loop, of `lock.acquire()` at train.py:9, rank 0
    in all_reduce at train.py:12 → rank 0.
    """
    trying = tuple(sorted(case.graph.roots & case.seen))
    if not trying or any(not _tries(case, rank) for rank in trying):
        return None
    past = tuple(rank for rank in sorted(case.seen - set(trying)) if has_passed(case, rank, trying))
    if not past:
        return None
    first, way = past[0], user_stack(case.activities[trying[0]].stack)
    if _was_there_before(case, past, trying):
        sure = f"{ranks_text(past)} are recorded to have found a lock there, too"
        return Blame(OlderLock(past), trying, confidence=Confidence.LIKELY, sure=sure)
    found = LeftLock(trying, _asks_for_it(case, way))
    if len(past) > 1:
        sure = f"{ranks_text(past)} are past that line; the last of them to take the lock left it there"
        return Blame(found, (first,), tuple((rank,) for rank in past if rank != first), sure=sure)
    if _may_be_skipped(case, first, trying[0]):
        sure = f"rank {first} is past that line, and may have gone there without the lock"
        return Blame(found, (first,), (trying,), sure=sure)
    sure = f"rank {first} alone is past the line that takes the lock"
    return Blame(found, (first,), confidence=Confidence.LIKELY, sure=sure)


def _was_there_before(case: Case, past: tuple[int, ...], trying: tuple[int, ...]) -> bool:
    """True if each of the ranks that came past is recorded to have found the lock there at first: then none of them was
    the first to create it, and it is older than their tries."""
    place = next(iter(user_stack(case.activities[trying[0]].stack)), None)
    loops = [guard for guard in _around(case, place) if guard.kind == "loop"] if place is not None else []
    if place is None or not loops:
        return False
    key = condition_key(place.file, loops[-1].line, loops[-1].condition)
    first = [case.execution.since_last_call(rank, trying[0], key)[:1] for rank in past]
    return all(each == [str(loops[-1].taken)] for each in first)


def _asks_for_it(case: Case, way: Stack) -> Frame:
    """The line of the function that tries where it also lets the lock go, as one of a library's lock does; else that of
    its caller."""
    if len(way) < 2 or way[1].function == "<module>" or lets_go(way[0], case.sources):
        return way[0]
    return way[1]


def lock_files(case: Case, rank: int) -> tuple[OpenFile, ...]:
    """The lock files that the rank's locals name."""
    process = case.ranks[rank].process
    return process.named_locks if process is not None else ()


def _tries(case: Case, rank: int) -> bool:
    """True if the rank tries again and again for a lock that is a file, which was made since the rank began."""
    activity, process = case.activities[rank], case.ranks[rank].process
    files = lock_files(case, rank)
    if any(file.peers for file in files) or process is None:
        return False
    if any(process.started and file.changed < process.started for file in files):
        return False  # an earlier run left it
    if activity.kind == ActivityKind.FILE_LOCK:
        return bool(files) and not process.blocking_files
    return activity.kind == ActivityKind.SLEEPING and tries_for_new_file(activity.stack, case.sources)


def has_passed(case: Case, rank: int, trying: tuple[int, ...]) -> bool:
    """True if the rank has come back from where those are that try.

    In a loop that both are in the rank must be ahead, not a round behind: it waits in a call that these are not in.
    Then it may be at a line before theirs as well, a round later.
    """
    activity = case.activities[rank]
    if activity.kind in GONE or not activity.stack:
        return False
    other = case.activities[trying[0]].stack
    past = is_past(case.sources, activity.stack, other)
    ahead = activity.kind == ActivityKind.IN_COLLECTIVE and bool(case.graph.on(rank) & set(trying))
    return past == "certainly" or (ahead and (past == "perhaps" or in_one_loop(case.sources, activity.stack, other)))


def _may_be_skipped(case: Case, rank: int, trying: int) -> bool:
    """True if a condition, between the line where the two parted and the one that tries, lets a rank go round it."""
    mine, theirs = case.activities[rank].stack, case.activities[trying].stack
    common = fork(mine, theirs).common
    *way, last = tuple(reversed(user_stack(theirs)))[common:]
    known = {guard.place for guard in _around(case, tuple(reversed(user_stack(mine)))[common])}
    tried = _around(case, last)
    outside, inside = split_at_loop(tried)  # what it tries in is no way
    found = [*(guard for frame in way for guard in _around(case, frame)), *(outside if inside else ())]
    return any(guard.kind in CONDITIONS and guard.place not in known and not _is_by_round(guard) for guard in found)


def _is_by_round(guard: Guard) -> bool:
    """True for a test that goes alike on every rank: `if step % 100 == 0:`; of the rank, False."""
    return is_alike(guard) and pattern("rank_word").search(guard.condition) is None


def _around(case: Case, frame: Frame) -> list[Guard]:
    tree = case.sources.function(frame.file, frame.line)
    return guards(tree, frame.line) if tree is not None else []
