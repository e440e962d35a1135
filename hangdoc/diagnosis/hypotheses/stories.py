"""Whom the story names that fits what was seen: evidence as any other, by its kind and by how sure it is of itself.

Example: rank 1 sleeps and the others wait for it → (1,) with 'story: OutsideWait', 'story unproved', 'story likely'.
"""

from __future__ import annotations

from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.hypotheses.suspects import Suspects


def by_story(suspects: Suspects, told: Blame[Explanation]) -> None:
    """Adds it."""
    proved = "proved" if told.proved else "unproved"
    for kind in (f"story: {type(told.found).__name__}", f"story {proved}", f"story {told.confidence}"):
        suspects.add(told.culprits, kind)
