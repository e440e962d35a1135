"""What deciders are asked with, and what one is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.blame.divergences import (
    best_repair,
    differing_call,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import (
    Blame,
    Diverged,
    Explanation,
)


@dataclass(frozen=True)
class Inquiry:
    """What several deciders need, computed once."""

    case: Case

    @cached_property
    def divergence(self) -> Blame[Diverged] | None:
        """The best repair of the ranks' call sequences."""
        return best_repair(self.case)

    @cached_property
    def disagreement(self) -> Blame[Disagreement] | None:
        """One call that all ranks make with different arguments or roots.

        None where histories prove a divergence. Without histories, ranks with different roots also look as if a call
        were missing, and the roots explain more.
        """
        found = self.divergence
        settled = found is not None and found.proved and self.case.programs
        return None if settled else differing_call(self.case)


Decider = Callable[[Inquiry], "Blame[Explanation] | None"]
