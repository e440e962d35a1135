"""Which suspects are the likeliest: few weights, one for each kind of evidence.

They are measured on the saved cases by ``tests/accuracy/who.py``; ``weighing`` adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.hypotheses.calls import by_calls
from hangdoc.diagnosis.hypotheses.messages import by_messages
from hangdoc.diagnosis.hypotheses.outliers import by_likeness, by_unlikeness
from hangdoc.diagnosis.hypotheses.owing import by_needs
from hangdoc.diagnosis.hypotheses.proofs import PROOFS, by_proofs
from hangdoc.diagnosis.hypotheses.rounds import by_rounds
from hangdoc.diagnosis.hypotheses.stories import by_story
from hangdoc.diagnosis.hypotheses.suspects import Evidence, Ranks, Suspects
from hangdoc.diagnosis.hypotheses.waits import by_effect, by_waits
from hangdoc.diagnosis.weighing import shares, weights_of
from hangdoc.model.kinds import Confidence

CERTAIN, POINTED, LIKELY = 0.99, 0.95, 0.7
"""From which share on the likeliest suspects are called so. A share is the chance to be right, as it turns out: with
weights of other programs, of the saved cases from 0.99 on all 353 are right, and of those from 0.7 to there 87 %
(``tests/accuracy/who.py`` prints it, and fails below 99 and 85 %). Pointed: where calls and waits leave several sides,
the rest of the evidence points to one of them (of 30 such saved cases all are right)."""


_GATHERERS = (
    *(by_proofs, by_waits, by_calls, by_messages, by_needs, by_rounds, by_unlikeness),
    *(by_effect, by_likeness),  # they look at all suspects that the others have named
)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """These ranks are to blame. ``share``: 0 to 1, of all suspects of the job together 1."""

    culprits: Ranks
    share: float
    evidence: Evidence
    """For and against: each kind counts by its weight."""

    @property
    def confidence(self) -> Confidence:
        """How sure it is that it is these. Whoever is proved alone has the whole share."""
        return confidence_of(self.share)


def confidence_of(share: float) -> Confidence:
    """In words."""
    if share >= CERTAIN:
        return Confidence.CERTAIN
    return Confidence.LIKELY if share >= LIKELY else Confidence.POSSIBLE


def hypotheses(case: Case, told: Blame[Explanation] | None = None) -> list[Hypothesis]:
    """The likeliest first; none where no rank was seen. ``told``: the story that fits, which is evidence as well.

    Example: rank 2 alone is a root, and 0 and 1 wait in one call → (2,) with a share of 0.93, then (0,) and (1,).
    """
    found = standing(suspected(case, told))
    judged = [Hypothesis(ranks, share, found[ranks]) for ranks, share in shares(found, weights_of(__package__)).items()]
    return sorted(judged, key=lambda each: (-each.share, each.culprits))


def standing(suspects: Mapping[Ranks, Evidence]) -> Mapping[Ranks, Evidence]:
    """Those of whom there is a proof; all where there is none."""
    proved = {ranks: kinds for ranks, kinds in suspects.items() if not kinds.isdisjoint(PROOFS)}
    return proved or suspects


def suspected(case: Case, told: Blame[Explanation] | None = None) -> Mapping[Ranks, Evidence]:
    """All suspects and the evidence, before anybody weighs it."""
    suspects = Suspects(case)
    if told is not None:
        by_story(suspects, told)
    for gather in _GATHERERS:
        gather(suspects)
    return suspects.evidence()
