"""Where does each rank wait for the others to join?"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack


def meeting_places(case: Case) -> dict[str, list[int]]:
    """Address → the ranks that wait there for the job's store: what they connect to, else what their program says,
    else their environment."""
    places: dict[str, list[int]] = {}
    for rank, activity in sorted(case.activities.items()):
        snapshot = case.ranks[rank]
        if activity.kind != ActivityKind.STORE_WAIT:
            continue
        told = dict(snapshot.environment)
        place = [told.get("MASTER_ADDR", ""), told.get("MASTER_PORT", "")]
        for wait in snapshot.journal.store_waits if snapshot.journal else ():
            if wait.operation == "connect" and len(wait.keys) == 2:
                place = list(wait.keys)
        where = _init_method(activity.stack) or (":".join(place) if all(place) else "")
        if where:
            places.setdefault(where, []).append(rank)
    return places


def _init_method(stack: Stack) -> str:
    """'file:///mnt/meeting', 'localhost:29500': where `init_process_group(init_method=…)` sends a rank; '' if it does
    not say."""
    for frame in stack:
        if plain(frame.function) in names("joins_job"):
            told = next((local.value.strip("\"'") for local in frame.locals if local.name == "init_method"), "")
            return told.partition("?")[0].removeprefix("tcp://") if told.startswith(("file://", "tcp://")) else ""
    return ""
