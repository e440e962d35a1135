"""A blame without the ranks that were not seen: unseen is not guilty."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.explanation import Blame, Explanation, HeldUpUnseen


def only_seen(found: Blame[Explanation], hidden: frozenset[int], seen: frozenset[int]) -> Blame[Explanation]:
    """``found`` without the ranks that were not seen; ``nobody_seen`` if all its culprits were hidden."""
    if isinstance(found.found, HeldUpUnseen):
        return found  # nobody is blamed, and who was not seen is the open question
    if not hidden or hidden.isdisjoint((*found.culprits, *(rank for side in found.alternatives for rank in side))):
        return found
    culprits = tuple(rank for rank in found.culprits if rank in seen)
    if found.culprits and not culprits:
        return nobody_seen()
    sides = (tuple(rank for rank in side if rank in seen) for side in found.alternatives)
    return replace(found, culprits=culprits, alternatives=tuple(side for side in sides if side))


def nobody_seen(unseen: tuple[int, ...] = ()) -> Blame[HeldUpUnseen]:
    """The blame where the ranks that the others wait for were not seen. ``unseen`` are those, where they are known."""
    others = (unseen,) if unseen else ()
    return Blame(HeldUpUnseen(), alternatives=others, sure="the ranks that the others wait for were not seen")
