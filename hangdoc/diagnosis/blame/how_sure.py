"""How sure it is that ranks are to blame that ended or wait outside the job, and what was seen of them."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import lines_of, site_of
from hangdoc.diagnosis.source.loops import asks_again
from hangdoc.diagnosis.state.process import blocking_thread, descendants, is_moving
from hangdoc.diagnosis.state.store_keys import free_ranks
from hangdoc.diagnosis.state.unseen import all_on_this_host
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


def polls(case: Case, rank: int) -> bool:
    """True if the rank asks again and again, with a sleep in between, for what nobody tells it."""
    activity = case.activities[rank]
    tree = case.sources.function(activity.where.file, activity.where.line) if activity.where is not None else None
    if tree is None or activity.where is None or activity.kind != ActivityKind.SLEEPING:
        return False
    return asks_again(tree, activity.where.line)


def ended_in_order(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if they ended with status 0, and no recorded collective nor the store needs them.

    Any other wait for them may be an extra call of the ranks that wait.
    """
    ends = [case.ranks[r].exit for r in ranks]
    needed = any(
        case.activities[w.waiter].kind == ActivityKind.STORE_WAIT
        or (w.source == "journal" and case.activities[w.waiter].kind == ActivityKind.IN_COLLECTIVE)
        for w in case.graph.waits
        if not set(w.on).isdisjoint(ranks)
    )
    return not needed and all(end is not None and end.status == 0 and not end.exception for end in ends)


def how_many_wait(case: Case) -> str:
    """'3 ranks wait for it'."""
    waiting = len(case.graph.waits)
    return f"{waiting} ranks wait for it" if waiting > 1 else "one rank waits for it"


def held_by_debugger(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if a debugger holds each of them: the person who attached it may let them go on."""
    processes = [case.ranks[r].process for r in ranks]
    return all(p is not None and p.last is not None and p.last.tracer_pid for p in processes)


def _never_seen(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if no process of one of them was seen, so that its end is only inferred."""
    return any(case.ranks[r].process is None for r in ranks)


def how_sure_of_the_end(case: Case, ranks: tuple[int, ...]) -> Confidence:
    """Certain of the end of processes that were seen, or that could only have run on this host."""
    inferred = _never_seen(case, ranks) and not all_on_this_host(case.job)
    return Confidence.LIKELY if inferred else Confidence.CERTAIN


def seen_states(case: Case, ranks: tuple[int, ...]) -> str:
    """'seen in the process table (exited)'."""
    if _never_seen(case, ranks):
        here = (
            "the launcher starts every rank on this host"
            if all_on_this_host(case.job)
            else "the rendezvous is on this host"
        )
        return f"{here}, and no process carries {ranks_text(ranks)}"
    kinds = sorted({case.activities[r].kind for r in ranks})
    return f"seen in the process table ({', '.join(kinds)})"


def nobody_acts(case: Case, waiting: tuple[int, ...]) -> bool:
    """True if nobody may still end what these ranks wait for: it has no timeout, all other ranks were seen and wait for
    ranks or have ended, and the program that started them does not move.

    Examples: `lock.acquire(timeout=60)` → False; the others in all_reduce, and the launcher in join() → True.
    """
    processes = [process for rank in waiting if (process := case.ranks[rank].process) is not None]
    threads = [thread for process in processes if (thread := blocking_thread(process)) is not None]
    if (
        case.hidden
        or any(thread.wakes_in is not None for thread in threads)
        or set(free_ranks(case.activities)) - set(waiting)
    ):
        return False
    return not any(is_moving(launcher) for _, launcher in case.job.launchers)


def has_children(case: Case, rank: int) -> bool:
    """True if the rank has processes of its own that were looked at."""
    process = case.ranks[rank].process
    return process is not None and any(child.last is not None for child in process.children)


def children_work(case: Case, rank: int) -> bool:
    """True if a process below the rank works. One at rest may be no more than multiprocessing's resource tracker."""
    process = case.ranks[rank].process
    return process is not None and any(map(is_moving, descendants(process)))


def at_one_line(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if the ranks wait at one line, called by the same lines."""
    return len({lines_of(site_of(case.activities[rank].stack)) for rank in ranks}) == 1
