"""Dumps of flight recorders: only calls are known, and of a rank whose dump is missing, nothing.

gloo's dumps do not even say who belongs to a group (torch 2.13): then the ranks that are here may not be all.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import where_they_wait
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Explanation, HeldUpUnseen, Nothing
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Message, Ranks, joined, sentence

_FIX = "collect the dumps of all ranks (TORCH_FR_DUMP_TEMP_FILE names where each host writes its own) in one folder"


def no_surer_than_its_group(found: Blame[Explanation]) -> Blame[Explanation]:
    """The blame, at most "likely" where the dumps do not say who else is in the group: more ranks may do as the
    culprits do."""
    history = found.diverged.alignment.history if found.diverged is not None else None
    if history is None or not history.open or found.confidence != Confidence.CERTAIN:
        return found
    more = "the dumps do not say who else is in the group"
    return replace(found, confidence=Confidence.LIKELY, sure=f"{found.sure}; {more}" if found.sure else more)


def too_little(case: Case, found: Blame[Explanation]) -> Finding | None:
    """What there is to say where the dumps that are here do not tell why the job stands; None where they do."""
    missing = case.hidden
    unsure = isinstance(found.found, AllArrived) and (missing or any(h.open for h in case.histories))
    if not (isinstance(found.found, (HeldUpUnseen, Nothing)) or unsure):
        return None
    here = sorted(case.programs)
    waiting = tuple(rank for rank in here if case.activities[rank].kind == ActivityKind.IN_COLLECTIVE)
    stand = sentence(where_they_wait(case, waiting) if waiting else "no call in these dumps was under way")
    why = "" if waiting else "every call that they show had completed"
    are = "is" if len(here) == 1 else "are"
    if missing:
        gone = Ranks.of(missing)
        whose: Message = [gone, "'s dump is"] if len(missing) == 1 else ["the dumps of ", gone, " are"]
        counted = f"{len(here)} of {len(case.ranks)} dumps {are} here"
        open_ = sentence([whose, f" missing, so the reason is open: {counted}"], "collect the rest")
        return Finding("", joined(stand, open_, between=" "), why or "what the missing ranks do decides", _FIX)
    if waiting:
        dumps = f"1 dump {are} here, and it does" if len(here) == 1 else f"{len(here)} dumps {are} here, and they do"
        open_ = sentence(f"the reason is open: {dumps} not say how many ranks the job has", "collect the rest")
        return Finding("", joined(stand, open_, between=" "), "gloo's dumps do not name the members of a group", _FIX)
    remedy = "attach to the job, or run it under `hangdoc watch`"
    return Finding("", joined(stand, "The reason for the stall is open.", between=" "), why, remedy)
