"""Dumps of flight recorders: only calls are known, and of a rank whose dump is missing, nothing.

gloo's dumps do not even say who belongs to a group (torch 2.13): then the ranks that are here may not be all.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes.finding import capital, wait_sentence
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Explanation, HeldUpUnseen, Nothing
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.wording import name_ranks

_FIX = "collect the dumps of all ranks (TORCH_FR_DUMP_TEMP_FILE names where each host writes its own) in one folder"


def no_surer_than_its_group(found: Blame[Explanation]) -> Blame[Explanation]:
    """The blame, at most "likely" where the dumps do not say who else is in the group: more ranks may do as the
    culprits do."""
    history = found.diverged.alignment.history if found.diverged is not None else None
    if history is None or not history.open or found.confidence != Confidence.CERTAIN:
        return found
    more = "the dumps do not say who else is in the group"
    return replace(found, confidence=Confidence.LIKELY, sure=f"{found.sure}; {more}" if found.sure else more)


def too_little(case: Case, found: Blame[Explanation]) -> tuple[str, str, str] | None:
    """Verdict, reason and remedy where the dumps that are here do not tell why the job stands; None where they do."""
    missing = case.hidden
    unsure = isinstance(found.found, AllArrived) and (missing or any(h.open for h in case.histories))
    if not (isinstance(found.found, (HeldUpUnseen, Nothing)) or unsure):
        return None
    here = sorted(case.programs)
    waiting = tuple(rank for rank in here if case.activities[rank].kind == ActivityKind.IN_COLLECTIVE)
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
