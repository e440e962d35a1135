"""Two threads of a rank that wait in a collective each, where no history shows in which order they issued them.

Where every rank has made both calls, each would complete if it had its group for itself: one group got them in one
order from some ranks and in the other from the rest. Stacks cannot tell which ranks are which. Where all ranks wait in
one call, and some in another one beside it, these have issued that one first.

Examples: on all ranks the main thread waits in all_reduce and thread `checkpoint` in all_gather → both calls, of all
ranks. On all ranks thread `saver` waits in a barrier, on rank 3 also the main thread in all_reduce → both, of rank 3.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hangdoc.diagnosis.calls.stack_calls import group_shown
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, serves_another_thread, words
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.process import Frame, Stack, Thread

_GROUP = "ProcessGroup"
"""The class of a group that was given to a call, as a local of torch's frames shows it (torch 2.13)."""
_DEFAULT_NAME = "0"
"""What torch 2.13 calls the default group."""
_Group = tuple[str, tuple[int, ...]]
"""(name, members); ("", ()) is the default group."""
_DEFAULT: _Group = ("", ())


@dataclass(frozen=True, slots=True)
class ThreadCall:
    """A collective in which a thread waits."""

    thread: str
    op: str
    frame: Frame | None
    """The user's line; None in a thread of a library's."""
    stack: Stack = ()

    @property
    def name(self) -> str:
        """'thread `checkpoint`'."""
        return "the main thread" if self.thread == "MainThread" else f"thread `{self.thread}`"


@dataclass(frozen=True, slots=True)
class MixedThreads(Explanation):
    """Ranks wait in several calls at once, each in a thread of its own; ``calls``: those of all ranks first."""

    calls: tuple[ThreadCall, ...]
    others: tuple[int, ...] = ()
    """The ranks that wait in the first call alone."""


def mixed_threads(case: Case) -> Blame[MixedThreads] | None:
    """The calls in which threads of a rank wait at once, on one group; None where histories tell more."""
    still = not any(activity.moving for activity in case.activities.values())
    if case.programs or case.hidden or len(case.activities) < 2 or not still:
        return None
    waiting = {rank: _waiting(case, rank) for rank in sorted(case.activities)}
    groups = {group for threads in waiting.values() for group, _ in threads}
    for group in sorted(groups, key=lambda each: (each != _DEFAULT, each)):
        members = [rank for rank in waiting if not group[1] or rank in group[1]]
        found = {rank: _calls([t for g, t in waiting[rank] if g == group]) for rank in members}
        if not set(group[1]) <= waiting.keys():
            continue
        blamed = _blamed(found) if len(found) > 1 else None
        if blamed is not None:
            return blamed
    return None


def _blamed(found: dict[int, dict[Hashable, ThreadCall]]) -> Blame[MixedThreads] | None:
    """The blame by the calls of one group: rank → line → the call of a thread."""
    common = set.intersection(*(set(calls) for calls in found.values()))
    more = {rank: calls for rank, calls in found.items() if calls.keys() - common}
    sure = "stacks of all threads seen, the order of their calls not"
    first = next(iter(found.values()))
    if len(common) > 1 and not more:
        calls = tuple(first[site] for site in sorted(common, key=repr))
        return Blame(MixedThreads(calls), tuple(found), confidence=Confidence.LIKELY, sure=sure)
    beside = {site for calls in more.values() for site in calls} - common
    if len(common) != 1 or len(beside) != 1 or len(more) == len(found):
        return None
    both = next(iter(more.values()))
    calls = tuple(both[site] for site in (*common, *beside))
    if calls[1].thread != "MainThread":
        return None  # the others may have left out what starts such a thread
    others = tuple(rank for rank in found if rank not in more)
    return Blame(MixedThreads(calls, others), tuple(more), confidence=Confidence.LIKELY, sure=sure)


def _waiting(case: Case, rank: int) -> list[tuple[_Group, Thread]]:
    """(the group, the thread) of each thread of the rank that waits in a collective whose group is known."""
    process = case.ranks[rank].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    found = [(_group_of(t.frames), t) for t in threads if _waits_in_collective(t)]
    return [(group, thread) for group, thread in found if group is not None]


def _group_of(stack: Stack) -> _Group | None:
    """The group of the call: as a frame of torch's shows it, or the default one; None where it was given one that was
    not seen, which may be the thread's own."""
    shown = group_shown(stack)
    if shown is not None and shown[0] not in ("", _DEFAULT_NAME):
        return shown
    return None if shown is None and _has_a_group(stack) else _DEFAULT


def _calls(waiting: list[Thread]) -> dict[Hashable, ThreadCall]:
    """Line → the call of each of the threads."""
    lines = [next(iter(user_stack(t.frames)), None) for t in waiting]
    calls = [ThreadCall(t.name, _op(t.frames), line, t.frames) for t, line in zip(waiting, lines, strict=True)]
    return {_line_of(each): each for each in calls}


def _line_of(call: ThreadCall) -> Hashable:
    """The user's line, as a thread comes to it by another way than the main thread; all of the way in a library's."""
    return (call.op, call.frame.file, call.frame.line) if call.frame is not None else site_of(call.stack)


def _op(stack: Stack) -> str:
    """'all_gather (torch.distributed.checkpoint coordinates the ranks)'."""
    op, library = python_op(stack) or "a collective", words(stack)
    return f"{op} ({library})" if library else op


def _waits_in_collective(thread: Thread) -> bool:
    mark = kind_mark(thread.frames) if thread.frames and not serves_another_thread(thread.name) else None
    return mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE


def _has_a_group(stack: Stack) -> bool:
    """True if the call was given a group, which may be the thread's own: by the locals of the function of torch's that
    was called, as it hands a group of its own to those that it calls."""
    called = next((frame for frame in reversed(below_user(stack)) if frame.file.endswith(names("wraps_call"))), None)
    return called is not None and any(_GROUP in local.value for local in called.locals)
