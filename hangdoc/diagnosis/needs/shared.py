"""One thing that ranks wait for and that is no call: who could still give it, who has given it, who has taken it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.needs.resources import Seen, providing
from hangdoc.diagnosis.program.places import Place
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.calls_between import remote_function
from hangdoc.diagnosis.state.threads import runs_remote_call
from hangdoc.model.kinds import COMMUNICATING


@dataclass(frozen=True, slots=True)
class Waiting:
    """Ranks that wait for one thing."""

    seen: Seen | None
    ranks: tuple[int, ...]
    serving: frozenset[int]
    """The ranks whose children they have asked for it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One thing, and who gives it."""

    waiting: tuple[int, ...]
    could: tuple[int, ...]
    """The ranks of which one has to give it: all that neither wait for it nor have been asked for it."""
    asked: bool
    """Whoever was asked for it waits for another to ask."""
    gave: frozenset[int] = frozenset()
    """They have come to a place that provides it; this and ``never`` are empty where the counters do not tell."""
    never: frozenset[int] = frozenset()
    """They have come to none."""
    took: frozenset[int] = frozenset()
    """They have come to the line of the wait, or to a test that keeps who waits there, now or before."""


def shared_of(case: Case, program: Program, waiting: Waiting) -> Shared:
    """That of these ranks."""
    ranks = {*waiting.ranks}
    chains = [chain for rank in waiting.ranks if (chain := case.chains.get(rank)) is not None]
    requested = [chain for chain in chains if chain.needs_a_request]
    servers = {chain.last.rank for chain in requested} | waiting.serving | _runs_what_they_call(case, program, waiting)
    # Who waits at the line of one that has asked has asked as well, whatever its main thread does.
    asking = {hop.node.where for chain in requested for hop in chain.hops[-2:-1]} - {None}
    asking_at = {(frame.file, frame.line) for frame in asking if frame is not None}
    beside = {rank for rank in case.activities if asking_at and _has_thread_at(case, rank, asking_at)}
    # Who waits for one of them in no call is in line for it.
    graph = case.graph
    in_line = {
        rank
        for rank, activity in case.activities.items()
        if activity.kind not in COMMUNICATING and not ranks.isdisjoint(graph.on(rank))
    }
    could = tuple(r for r in sorted(case.activities) if r not in ranks | servers | beside | in_line)
    asked = bool(requested or waiting.serving)
    if waiting.seen is None:
        return Shared(waiting.ranks, could, asked)
    took = {rank for rank in case.ranks if any(case.table.ran(rank, *line) for line in waiting.seen.lines)} | ranks
    level = list(providing(program, waiting.seen))
    for _ in range(LISTED):
        gave, never = _came(case, program, level)
        if gave and never:
            return Shared(waiting.ranks, could, asked, gave, never, frozenset(took))
        level = list(dict.fromkeys(p for place in level for p in program.places.leading_to(*place)))
    return Shared(waiting.ranks, could, asked, took=frozenset(took))


def _has_thread_at(case: Case, rank: int, places: set[Place]) -> bool:
    process = case.ranks[rank].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    return any((frame.file, frame.line) in places for thread in threads for frame in thread.frames)


def _runs_what_they_call(case: Case, program: Program, waiting: Waiting) -> set[int]:
    """The ranks on which the function has run that these have called on another rank; none where these have run it
    themselves."""
    where = case.activities[waiting.ranks[0]].where
    called = remote_function(where, case.sources)
    if not called:
        return set()
    handling = {
        rank
        for rank, each in case.ranks.items()
        if each.process is not None
        and each.process.last is not None
        and any(runs_remote_call(thread) for thread in each.process.last.threads)
    }
    found, _ = _came(case, program, program.places.bodies_of(called))
    return {*(found or handling)} - {*waiting.ranks}


def came_to(case: Case, program: Program, rank: int, place: Place) -> bool | None:
    """Whether the rank has come to the place: by what counts lines, or as every way to where it is leads by there; None
    where neither tells.

    Example: rank 1 waits in `store.get(theirs)` below `store.set(own, "here")` → True of the latter.
    """
    ran = case.table.ran(rank, *place)
    if ran is not None or rank not in case.activities:
        return ran
    file, line = place
    here = program.function(file, line)
    frames = (frame for frame in case.activities[rank].stack if frame.file == file) if here is not None else ()
    return True if here is not None and any(here.comes_by(frame.line, line) for frame in frames) else None


def _came(case: Case, program: Program, places: Iterable[Place]) -> tuple[frozenset[int], frozenset[int]]:
    """(the ranks that have come to one of the places, those that are known to have come to none)."""
    gave, never = set(), set()
    places = list(places)
    for rank in case.activities if places else ():
        came = [came_to(case, program, rank, place) for place in places]
        if True in came:
            gave.add(rank)
        elif False in came:
            never.add(rank)
    return frozenset(gave), frozenset(never)
