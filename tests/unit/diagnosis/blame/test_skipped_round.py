"""All ranks in one call, each in a round of its own, as stacks alone show them."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame, Local
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

NAME = "call_left_out_in_a_round_attach"


def without_traces(epochs: dict[int, int]) -> Diagnosis:
    """The job without what rank 2 left behind, and with the count of main()'s loop as given."""
    job: JobSnapshot = api.load(case(NAME))

    def frame(found: Frame, rank: int) -> Frame:
        kept = tuple(v for v in found.locals if "rejected" not in v.name and v.name != "epoch")
        more = (Local("epoch", str(epochs[rank])),) if found.function == "main" and rank in epochs else ()
        return dataclasses.replace(found, locals=(*kept, *more))

    def changed(found: RankSnapshot) -> RankSnapshot:
        process = found.process
        assert process is not None
        looks = tuple(
            dataclasses.replace(
                look,
                threads=tuple(
                    dataclasses.replace(t, frames=tuple(frame(f, found.rank) for f in t.frames)) for t in look.threads
                ),
            )
            for look in process.looks
        )
        return dataclasses.replace(found, process=dataclasses.replace(process, looks=looks, code=()))

    return api.diagnose(dataclasses.replace(job, ranks=tuple(map(changed, job.ranks)), written=()))


def test_what_one_rank_left_behind_tells_who_and_why() -> None:
    found = api.diagnose(api.load(case(NAME)))
    assert (found.culprits, found.confidence) == ((2,), "likely")
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "if norm > self.ceiling:"


def test_the_count_of_the_loop_tells_who() -> None:
    found = without_traces({0: 0, 1: 0, 2: 1, 3: 0})
    assert (found.cause and found.cause.code, found.culprits, found.confidence) == ("HD102", (2,), "likely")


def test_nothing_is_told_where_all_rounds_are_alike_or_most_are_further_on() -> None:
    assert without_traces({}).culprits == ()
    assert without_traces(dict.fromkeys(range(4), 1)).culprits == ()
    assert without_traces({0: 1, 1: 1, 2: 0, 3: 1}).culprits == ()
