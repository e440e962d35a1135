"""Who is to blame, before it has a name."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangdoc.diagnosis.alignment import Alignment, Gap
from hangdoc.diagnosis.branch import Parting


@dataclass(frozen=True)
class Blame:
    """The verdict before it has a name.

    ``kind``: 'divergence', 'gone', 'cycle', 'outside' (a root that may go on by itself), 'arrived' (everybody is
    there and nothing moves), 'arguments' or 'root' (on which they disagree), 'tag' (of a message), 'partner', 'apart'
    (they wait for each other in different places), 'hidden' (those that the others wait for were not seen) or
    'nothing'.
    ``proved``: no future step can end it.
    """

    kind: str
    culprits: tuple[int, ...] = ()
    alternatives: tuple[tuple[int, ...], ...] = ()
    proved: bool = False
    confidence: str = "possible"
    sure: str = ""
    alignment: Alignment | None = None
    partings: tuple[Parting, ...] = field(default=())
    late: Gap | None = None
    """The others' call, where the culprits make it as well and only later: told in place of the smallest repair."""

    @property
    def gap(self) -> Gap | None:
        """The divergence itself: the first repair of the chosen alignment."""
        return self.late or (self.alignment.first if self.alignment else None)

    @property
    def past(self) -> bool:
        """Did the ranks part some calls ago, and go on?"""
        return self.gap is not None and self.gap.past

    @property
    def parting(self) -> Parting | None:
        """The guard that parted the sides, where one was found."""
        return self.partings[0] if self.partings else None
