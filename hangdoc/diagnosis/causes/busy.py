"""HD5xx: a rank is busy or blocked elsewhere, and the others wait, correctly."""

from __future__ import annotations

from hangdoc.diagnosis.blame import Blame
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes.finding import Finding, capital, others_of, place, verb, wait_sentence
from hangdoc.model.wording import name_ranks


def straggler(case: Case, blame: Blame) -> Finding | None:
    """HD501: computing or doing I/O, and moving."""
    slow = tuple(r for r in blame.culprits if case.activities[r].moving)
    if blame.kind != "outside" or not slow or any(case.activities[r].kind == "compiling" for r in slow):
        return None
    first = case.activities[slow[0]]
    kind = "computing" if first.kind == "computing" else first.text
    where = f" at {place(first.where)}" if first.where else ""
    return Finding(
        "HD501",
        capital(f"{name_ranks(slow)} {verb(slow, 'is', 'are')} still {kind}{where}; {_waiting(case, blame)}."),
        "its CPU time, I/O or stack changes: it works, and the others have nothing to do but wait",
        "nothing is broken; give every rank an equal share of the work, or let the others go on without waiting",
    )


def sleeping(case: Case, blame: Blame) -> Finding | None:
    """HD508: time.sleep, or polling for a condition that never comes."""
    asleep = tuple(r for r in blame.culprits if case.activities[r].kind == "sleeping")
    if blame.kind != "outside" or not asleep:
        return None
    first = case.activities[asleep[0]]
    where = f" at {place(first.where)}" if first.where else ""
    thread = None
    process = case.ranks[asleep[0]].process
    if process is not None and process.last is not None:
        thread = process.last.main
    wakes = thread.wakes_in if thread else None
    line = case.sources.line(first.where.file, first.where.line) if first.where else None
    why = f"`{line}` ({place(first.where)})" if line else f"it sleeps{where}"
    why += f" wakes in {wakes:.0f} s" if wakes is not None and wakes >= 1 else ""
    return Finding(
        "HD508",
        capital(
            f"{name_ranks(asleep)} {verb(asleep, 'sleeps or polls', 'sleep or poll')}{where}; {_waiting(case, blame)}."
        ),
        why + "; if it polls, the condition it waits for has not come",
        "bound the wait with a deadline and an error, or signal the condition through a collective that all ranks join",
    )


def _waiting(case: Case, blame: Blame) -> str:
    return wait_sentence(case, others_of(case, blame)) or "nobody waits for it"
