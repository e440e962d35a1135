"""Of several conditions, the one whose value the rank decides one to three steps back: it differs for sure.

Example: rank 2 alone is in emit(), at

    64  if step % self.every:
    65      return
    66  self.active and self.emit(step)

where the property `active` returns `self.rank in self.wanted` → `self.active`, and not the round's number.
"""

from __future__ import annotations

import re

from hangdoc.diagnosis.condition.elsewhere.set_before import set_before
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import Condition


def is_of_a_part(sources: Sources, condition: Condition) -> bool:
    """True if the rank decides that condition, or what it asks: whoever has that part has been there from the start.

    Example: `if self.last:`, set by `self.last = rank == world - 1` → True.
    """
    answers = (each for each in set_before(sources, condition.file, condition.line) if each.sets)
    tests = (condition, *(test for each in answers for test in each.tests))
    return any(pattern("rank_word").search(each.source) and not _asks_more(each.source) for each in tests)


def _asks_more(test: str) -> bool:
    """True of `rank == 2 and late` and of `step % world == rank`, which come out so at a time of their own."""
    return not {"and", "or", "%"}.isdisjoint(re.findall(r"\w+|%", test))
