"""A server of remote calls all of whose threads wait for a call that no thread is left to run.

Example: push() answers when four trainers have called it; the server has three threads for calls of others, each of
which runs the push() of one trainer and waits, so that the fourth trainer's call never begins → the server.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.threads import End, runs_remote_call
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class FullServer(Explanation):
    """``waiting`` have called the function on the culprit, which runs it in ``threads`` threads, fewer than they are;
    each of these waits ``at`` a line for a further call."""

    waiting: tuple[int, ...]
    called: str
    threads: int
    at: Frame


def full_server(case: Case) -> Blame[FullServer] | None:
    """The blame of the rank that has too few threads for the calls that it is asked; None if a call may still begin."""
    chains = {
        rank: chain
        for rank, chain in sorted(case.chains.items())
        if chain.end is End.REQUEST and len(chain.hops) == 2 and runs_remote_call(chain.last.thread)
    }
    servers = {chain.last.rank for chain in chains.values()}
    if len(servers) != 1 or case.hidden:
        return None
    (server,) = servers
    process = case.ranks[server].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    ways = [user_stack(thread.frames) for thread in threads if runs_remote_call(thread)]
    if not 0 < len(ways) < len(chains) or not all(ways):
        return None
    places = {(way[0].file, way[0].line, plain(way[-1].function)) for way in ways}
    at, called = ways[0][0], plain(ways[0][-1].function)
    if len(places) != 1 or any(chain.asked not in ((), (called,)) for chain in chains.values()):
        return None
    proved = all(chain.last.thread.wakes_in is None for chain in chains.values())
    count = f"{len(ways)} thread{'s' if len(ways) > 1 else ''}"
    sure = f"{len(chains)} ranks wait for its answers, and {count} of it run what they called"
    found = FullServer(tuple(chains), called, len(ways), at)
    return Blame(found, (server,), proved=proved, confidence=Confidence.LIKELY, sure=sure)
