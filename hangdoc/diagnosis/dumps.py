"""Dumps of flight recorders: only calls are known, and of a rank whose dump is missing, nothing.

gloo's dumps do not even say who belongs to a group (torch 2.13): then the ranks that are here may not be all.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes.finding import Finding, capital, place, verb, wait_sentence
from hangdoc.diagnosis.culprit import Blame
from hangdoc.diagnosis.unseen import HIDDEN
from hangdoc.diagnosis.waits import distinct_waits
from hangdoc.model.wording import name_ranks

_FIX = "collect the dumps of all ranks (TORCH_FR_DUMP_TEMP_FILE names where each host writes its own) in one folder"


def no_surer_than_its_group(found: Blame) -> Blame:
    """The blame, at most "likely" where the dumps do not say who else is in the group: more ranks may do as the
    culprits do."""
    history = found.alignment.history if found.alignment is not None else None
    if history is None or not history.open or found.confidence != "certain":
        return found
    more = "the dumps do not say who else is in the group"
    return replace(found, confidence="likely", sure=f"{found.sure}; {more}" if found.sure else more)


def too_little(case: Case, found: Blame) -> tuple[str, str, str] | None:
    """Verdict, reason and remedy where the dumps that are here do not tell why the job stands; None where they do."""
    missing = case.hidden
    unsure = found.kind == "arrived" and (missing or any(h.open for h in case.histories))
    if not (found.kind in (HIDDEN, "nothing") or unsure):
        return None
    here = sorted(case.programs)
    waiting = tuple(rank for rank in here if case.activities[rank].kind == "in-collective")
    stand = f"{capital(wait_sentence(case, waiting))}." if waiting else "No call in these dumps was under way."
    why = "" if waiting else "every call that they show had completed"
    are = "is" if len(here) == 1 else "are"
    if missing:
        whose = f"{name_ranks(missing)}'s dump is" if len(missing) == 1 else f"the dumps of {name_ranks(missing)} are"
        verdict = f"{stand} {capital(whose)} missing, so the reason is open: "
        verdict += f"{len(here)} of {len(case.ranks)} dumps {are} here; collect the rest."
        return verdict, why or "what the missing ranks do decides", _FIX
    if waiting:
        dumps = f"1 dump {are} here, and it does" if len(here) == 1 else f"{len(here)} dumps {are} here, and they do"
        verdict = f"{stand} The reason is open: {dumps} not say how many ranks the job has; collect the rest."
        return verdict, "gloo's dumps do not name the members of a group", _FIX
    return f"{stand} Why the job stands is open.", why, "attach to the job, or run it under `hangdoc watch`"


def behind(case: Case, found: Blame) -> Finding | None:
    """Ranks that have not issued what others wait for, and in whose dumps nothing is under way."""
    culprits = found.culprits
    if found.kind != "outside" or any(case.activities[rank].kind != "not-visible" for rank in culprits):
        return None
    wait = next((w for w in distinct_waits(case.graph.waits) if not set(w.on).isdisjoint(culprits)), None)
    if wait is None:
        return None
    stuck = case.activities[wait.waiter]
    call = " ".join(stuck.text.split())
    return Finding(
        "",
        f"{capital(name_ranks(culprits))} {verb(culprits, 'has', 'have')} not issued {call}, in which "
        f"{name_ranks(w.waiter for w in case.graph.waits if w.on == wait.on)} waited"
        + (f" at {place(stuck.where)}." if stuck.where else "."),
        f"no call of {name_ranks(culprits)} was under way when the dump was written; what else it did, a dump does not "
        "show",
        f"look at the log of {name_ranks(culprits)}, or at its stack (`py-spy dump --pid PID`) where it still lives",
    )
