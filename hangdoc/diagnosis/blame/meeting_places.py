"""The address at which each rank waits for the others to join."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack


def meeting_places(case: Case) -> dict[str, list[int]]:
    """Address → the ranks that wait there for the job's store.

    The address is that of `init_method` if the program gives one, else the one that the rank connects to, else that of
    its environment. Example: {'localhost:29500': [0, 1], 'localhost:29501': [2]}.
    """
    places: dict[str, list[int]] = {}
    for rank, activity in sorted(case.activities.items()):
        snapshot = case.ranks[rank]
        if activity.kind != ActivityKind.STORE_WAIT:
            continue
        environment = dict(snapshot.environment)
        place = [environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")]
        for wait in snapshot.journal.store_waits if snapshot.journal else ():
            if wait.operation == "connect" and len(wait.keys) == 2:
                place = list(wait.keys)
        where = _init_method(activity.stack) or (":".join(place) if all(place) else "")
        if where:
            places.setdefault(where, []).append(rank)
    return places


def _init_method(stack: Stack) -> str:
    """The `init_method` of init_process_group: 'file:///mnt/meeting', 'localhost:29500'; '' if none was given."""
    for frame in stack:
        if plain(frame.function) in names("joins_job"):
            url = next((local.value.strip("\"'") for local in frame.locals if local.name == "init_method"), "")
            return url.partition("?")[0].removeprefix("tcp://") if url.startswith(("file://", "tcp://")) else ""
    return ""
