"""Who went on without doing what the others poll for."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.left_turn import left_turn
from hangdoc.diagnosis.context import Case
from hangdoc.model.snapshot import JobSnapshot

LOOP = 25


def led_by_rank_0(job: JobSnapshot) -> JobSnapshot:
    """The same where rank 0 has never come to the loop that polls."""
    first, *others = job.ranks
    assert first.process is not None
    codes = tuple(
        dataclasses.replace(
            code,
            ran=tuple(line for line in code.ran if line != LOOP),
            idle=(*code.idle, *(line for line in code.ran if line == LOOP)),
        )
        for code in first.process.code
    )
    first = dataclasses.replace(first, process=dataclasses.replace(first.process, code=codes))
    return dataclasses.replace(job, ranks=(first, *others))


def test_one_that_lets_the_others_go_on_has_no_turn_itself() -> None:
    job = api.load(case("turn_not_passed_on"))
    found = left_turn(Case(job))
    assert found is not None and found.culprits == (1,)
    assert left_turn(Case(led_by_rank_0(job))) is None
