"""Where does each rank wait for the others to join?"""

from __future__ import annotations

from hangdoc.diagnosis.case import Case


def meeting_places(case: Case) -> dict[str, list[int]]:
    """Address → the ranks that wait there for the job's store: what they connect to, else what their environment
    says."""
    places: dict[str, list[int]] = {}
    for rank, activity in sorted(case.activities.items()):
        snapshot = case.ranks[rank]
        if activity.kind != "store-wait":
            continue
        told = dict(snapshot.environment)
        place = [told.get("MASTER_ADDR", ""), told.get("MASTER_PORT", "")]
        for wait in snapshot.journal.store_waits if snapshot.journal else ():
            if wait.operation == "connect" and len(wait.keys) == 2:
                place = list(wait.keys)
        if all(place):
            places.setdefault(":".join(place), []).append(rank)
    return places
