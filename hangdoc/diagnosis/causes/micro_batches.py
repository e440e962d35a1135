"""HD202 of a pipeline whose stages cut their batch differently: into how many parts, and what decides it."""

from __future__ import annotations

from hangdoc.diagnosis.blame.micro_batches import UnevenMicroBatches
from hangdoc.diagnosis.causes.deciding import subject_of
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.given_micro_batches import number_set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Message, joined, sentence


@cause("HD202", explains=UnevenMicroBatches, order=285)
def other_micro_batches(case: Case, blame: Blame[UnevenMicroBatches]) -> Finding:
    """HD202: neighbor stages of a pipeline run different numbers of micro-batches."""
    counts, culprits = blame.found.counts, blame.culprits
    others = tuple(sorted(set(counts) - set(culprits)))
    where = case.activities[culprits[0]].where
    decided = number_set_by(case.sources)
    name = blame.found.name
    mine: list[Message] = [Does(culprits, "runs", "run"), " ", _numbers(counts, culprits), " micro-batches", at(where)]
    theirs: list[Message] = [Does(others, "runs", "run"), " ", _numbers(counts, others)]
    if name:
        mine = [Does(culprits, "computes", "compute"), " the number of micro-batches from ", f"{name} = "]
        mine += [_numbers(counts, culprits), at(where)]
        theirs = [Does(others, "computes", "compute"), " it from ", _numbers(counts, others)]
    return Finding(
        "HD202",
        sentence(
            [[*mine, ", and "], theirs],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            "each stage of a pipeline sends and receives one message for each micro-batch, so the further ones have no "
            "partner",
            *([subject_of(answer), Joined(answer.tests, " and ")] for answer in decided),
        ),
        "give every stage the same number of micro-batches (n_microbatches): compute it from what all of them share",
        decided_at=decided[0].tests[0] if decided else None,
    )


def _numbers(counts: dict[int, int], ranks: tuple[int, ...]) -> Joined:
    """4; 2 or 8."""
    return joined(*map(str, sorted({counts[rank] for rank in ranks})), between=" or ")
