"""HD3xx: starting up."""

from __future__ import annotations

from hangdoc.diagnosis.blame import Blame
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes.finding import Finding, capital, verb, wait_sentence
from hangdoc.model.wording import name_ranks


def never_joined(case: Case, blame: Blame) -> Finding | None:
    """HD301: ranks wait on the store for a rank that no process carries."""
    absent = tuple(r for r in blame.culprits if case.activities[r].kind == "absent")
    if not absent:
        return None
    waiting = tuple(r for r, a in case.activities.items() if a.kind == "store-wait")
    if not waiting:
        return None
    present = [r for r, a in case.activities.items() if a.kind != "absent"]
    size = case.job.world_size or len(case.activities)
    return Finding(
        "HD301",
        capital(
            f"{name_ranks(absent)} never joined: no process carries {verb(absent, 'it', 'them')}; "
            f"{wait_sentence(case, waiting)}."
        ),
        f"the job was set up for {size} ranks (WORLD_SIZE) and {len(present)} "
        f"{verb(tuple(present), 'was', 'were')} ever seen on this machine",
        f"start {name_ranks(absent)} as well, or set the world size to {len(present)}",
    )
