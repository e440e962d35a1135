"""A server of remote calls all of whose threads wait for a call that no thread is left to run.

Example: push() answers when four trainers have called it; the server has three threads for calls of others, each of
which runs the push() of one trainer and waits, so that the fourth trainer's call never begins → the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import remote_function
from hangdoc.diagnosis.state.serving import asked_of, ended_by_requests, serves_in_turn
from hangdoc.diagnosis.state.threads import Chain, End, awaited_object, runs_remote_call
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.process import Frame, Thread


@dataclass(frozen=True, slots=True)
class FullServer(Explanation):
    """``waiting`` have called the culprit, which runs ``called`` in all its ``threads`` threads, fewer than they are;
    each of these waits ``at`` a line for a further call."""

    waiting: tuple[int, ...]
    called: str
    threads: int
    at: Frame
    unbegun: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Who wait for another function that they called there, which no thread runs. Example: {"describe": (3,)}."""
    in_turn: bool = False
    """The server takes a request when it has answered the one before."""


def full_server(case: Case) -> Blame[FullServer] | None:
    """The blame of the rank that has too few threads for the calls that it is asked; None if a call may still begin."""
    if case.hidden:
        return None
    chains = {
        rank: chain for rank, chain in sorted(case.chains.items()) if chain.end is End.REQUEST and len(chain.hops) == 2
    }
    of_rpc = {rank: chain for rank, chain in chains.items() if runs_remote_call(chain.last.thread)}
    return _without_thread_left(case, of_rpc) or _one_at_a_time(case, chains)


def _without_thread_left(case: Case, chains: dict[int, Chain]) -> Blame[FullServer] | None:
    """The same of RPC, whose threads are of a fixed number."""
    servers = {chain.last.rank for chain in chains.values()}
    if len(servers) != 1:
        return None
    (server,) = servers
    process = case.ranks[server].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    ways = [user_stack(thread.frames) for thread in threads if runs_remote_call(thread)]
    unbegun = _unbegun(case, server, list(threads))
    waiting = tuple(sorted({*chains, *(rank for ranks in unbegun.values() for rank in ranks)}))
    if not 0 < len(ways) < len(waiting) or not all(ways):
        return None
    places = {(way[0].file, way[0].line, plain(way[-1].function)) for way in ways}
    at, called = ways[0][0], plain(ways[0][-1].function)
    if len(places) != 1 or any(chain.asked not in ((), (called,)) for chain in chains.values()):
        return None
    return _full(FullServer(waiting, called, len(ways), at, unbegun), server, chains)


def _unbegun(case: Case, server: int, threads: list[Thread]) -> dict[str, tuple[int, ...]]:
    """Who waits for a function that no thread runs, where no thread is left for it; {} where one of them is idle.

    Example: both threads run push(), and rank 3 has called describe() → {"describe": (3,)}.
    """
    busy = [thread for thread in threads if runs_remote_call(thread)]
    if any(not thread.frames and thread.name in {each.name for each in busy} for thread in threads):
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for rank in sorted(set(case.activities) - {server, *case.chains}):
        activity = case.activities[rank]
        called = remote_function(activity.where, case.sources) if activity.kind == ActivityKind.REMOTE_CALL else ""
        found |= {called: (*found.get(called, ()), rank)} if called else {}
    return found


def _one_at_a_time(case: Case, chains: dict[int, Chain]) -> Blame[FullServer] | None:
    """The same of a server whose only thread waits, in the work on one request, for what another one brings."""
    asked = [(c.last.rank, c.last.thread.tid) for c in chains.values()]
    for rank, tid in dict.fromkeys(asked):
        theirs = {r: c for r, c in chains.items() if (c.last.rank, c.last.thread.tid) == (rank, tid)}
        last = next(iter(theirs.values())).last
        if len(theirs) > 1 and last.where is not None and serves_in_turn(last.thread, case.sources):
            found = FullServer(tuple(theirs), asked_of(last.thread), 1, last.where, in_turn=True)
            waits = awaited_object(last, case.sources)
            alone = waits is not None and ended_by_requests(last.thread, *waits, case.sources)
            blame = _full(found, rank, theirs)
            return blame if alone else replace(blame, proved=False)  # a thread that is not seen may end it as well
    return None


def _full(found: FullServer, server: int, chains: dict[int, Chain]) -> Blame[FullServer]:
    proved = all(chain.last.thread.wakes_in is None for chain in chains.values())
    count = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    sure = f"{len(found.waiting)} ranks wait for its answers, and {count} of it run what they called"
    return Blame(found, (server,), proved=proved, confidence=Confidence.LIKELY, sure=sure)
