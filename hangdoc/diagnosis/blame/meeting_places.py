"""The address at which each rank waits for the others to join, and the rank as which it does."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import SharedRank
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import RankSnapshot


def meeting_places(case: Case) -> dict[str, list[int]]:
    """Address → the ranks that wait there for the job's store.

    The address is that of `init_method` if the program gives one, else the one that the rank connects to, else that of
    its environment. A program that sets MASTER_PORT itself shows it in torch's frames alone: then it is the port.
    Examples: {'localhost:29500': [0, 1], 'localhost:29501': [2]}; {'port 29500': [0], 'port 29501': [1]}.
    """
    given: dict[int, str] = {}
    known: dict[int, tuple[str, str]] = {}
    shown: dict[int, str] = {}
    for rank, activity in sorted(case.activities.items()):
        if activity.kind != ActivityKind.STORE_WAIT:
            continue
        if method := _init_method(activity.stack):
            given[rank] = method
            continue
        known[rank] = _address(case.ranks[rank])
        if port := _port_shown(activity.stack):
            shown[rank] = port
    where = {**{rank: ":".join(place) for rank, place in known.items() if all(place)}, **given}
    if not given and any(port != known[rank][1] for rank, port in shown.items()):
        where = {rank: f"port {port}" for rank, port in shown.items()}  # what they were started with does not hold
    places: dict[str, list[int]] = {}
    for rank in sorted(where):
        places.setdefault(where[rank], []).append(rank)
    return places


def _address(snapshot: RankSnapshot) -> tuple[str, str]:
    """(host, port) that the rank connects to, or was started with; '' for what is not known."""
    environment = dict(snapshot.environment)
    place = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    for wait in snapshot.journal.store_waits if snapshot.journal else ():
        if wait.operation == "connect" and len(wait.keys) == 2:
            place = wait.keys[0], wait.keys[1]
    return place


def _port_shown(stack: Stack) -> str:
    """The port in the frame of torch's that makes the rank's store; '' where it is in none."""
    for frame in stack:
        if is_library(frame) and plain(frame.function) in names("makes_store"):
            ports = (local.value for local in frame.locals if local.name == "port")
            return next((port for port in ports if port.isdecimal()), "")
    return ""


def _init_method(stack: Stack) -> str:
    """The `init_method` of init_process_group: 'file:///mnt/meeting', 'localhost:29500'; '' if none was given."""
    url = _given(stack, "init_method").strip("\"'")
    return url.partition("?")[0].removeprefix("tcp://") if url.startswith(("file://", "tcp://")) else ""


def _given(stack: Stack, local: str) -> str:
    """What init_process_group was given under that name, as its frame shows it; '' where none is seen."""
    joins = (frame for frame in stack if is_library(frame) and plain(frame.function) in names("joins_job"))
    found = (each.value for frame in joins for each in frame.locals if each.name == local)
    return next(found, "")


def shared_rank(case: Case) -> SharedRank | None:
    """The ranks as which several processes each wait to join, where all of the job were seen; None where none is.

    Example: with RANK=1 and RANK=2, both at `init_process_group(rank=node + local, …)`, in which rank is 1.
    """
    size = case.job.world_size or 0
    waiting = {r: a.stack for r, a in case.activities.items() if a.kind == ActivityKind.STORE_WAIT and r in case.seen}
    given = {rank: int(value) for rank, stack in waiting.items() if (value := _given(stack, "rank")).isdecimal()}
    sizes = {value for stack in waiting.values() if (value := _given(stack, "world_size")).isdecimal()}
    if len(given) != size or not sizes <= {str(size)} or any(number >= size for number in given.values()):
        return None  # they are not all there, or parts of them make jobs of their own
    by: dict[int, list[int]] = {}
    for rank in sorted(given):
        by.setdefault(given[rank], []).append(rank)
    twice = {number: tuple(ranks) for number, ranks in sorted(by.items()) if len(ranks) > 1}
    if not twice:
        return None
    odd = tuple(rank for rank in sorted(given) if given[rank] != rank)
    own = all(given[number] == number for number in twice) and all(given[rank] in twice for rank in odd)
    return SharedRank(twice, tuple(sorted({*range(size)} - {*by})), odd if own else ())
