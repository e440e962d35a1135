"""Ranks wait for store keys that all have set, a few of them under another name.

Example: ranks 0 and 1 wait for endpoint/eu_b/0; all have run `self.store.set(key, address)`, and the line before it,
`key = key.replace("_", "-")` under `if self.style == "dns":`, has run on rank 3 alone → rank 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.unset_key import deletes_keys, own_setting
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.key_names import renamed_before
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class KeyRenamed(Explanation):
    """All ranks have set their key ``set_at``; the culprits alone went the way of ``test`` on which it gets another
    name, or the only ones that did not."""

    waiting: tuple[int, ...]
    set_at: Frame
    test: Condition
    taken: bool
    """The culprits went that way."""


def key_renamed(case: Case) -> Blame[KeyRenamed] | None:
    """The blame of the few ranks whose key has another name, by the interpreters' counters."""
    waiting = tuple(rank for rank, activity in sorted(case.activities.items()) if waits_for_a_key(activity))
    set_at = own_setting(case.sources) if waiting and case.table and not case.hidden else None
    ranks = sorted(case.activities)
    if set_at is None or deletes_keys(case.sources) or free_ranks(case.activities):
        return None
    if len(case.table.split(ranks, set_at.file, set_at.line).ran) < len(ranks):
        return None
    for line, guard in renamed_before(case.sources, set_at):
        went, never, unknown = case.table.split(ranks, set_at.file, line)
        few = min(went, never, key=len)
        if not few or 2 * len(few) >= len(ranks) or unknown or set(waiting) <= set(few):
            continue
        found = KeyRenamed(waiting, set_at, Condition(guard.condition, set_at.file, guard.line), few == went)
        how = "alone gave" if found.taken else "alone did not give"
        sure = f"all ranks have run the line that sets a key, and {ranks_text(few)} {how} it another name before"
        return Blame(found, few, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None
