"""What a pipeline's number of micro-batches is computed from."""

from __future__ import annotations

import pytest
from helpers.made_calls import made_calls

from hangdoc.diagnosis.condition.given_micro_batches import computed_from, number_set_by
from hangdoc.diagnosis.context import Case

TEXT = """
def main():
    schedule = ScheduleGPipe(stage, n_microbatches=count({name}))
    dist.barrier()
"""


@pytest.mark.parametrize(("name", "found"), [("rows", ("rows", {0: 4, 1: 8})), ("rank", None), ("local_rank", None)])
def test_the_rank_itself_is_no_reason(name: str, found: tuple[str, dict[int, int]] | None) -> None:
    calls = {rank: [("barrier", [(3, "main")])] for rank in (0, 1)}
    values = {0: {"main": {name: "4"}}, 1: {"main": {name: "8"}}}
    assert computed_from(Case(made_calls(TEXT.format(name=name), calls, values)), {0, 1}) == found


OF_ROWS = """
def build(batch):
    if batch is None:
        count = 4
    else:
        count = len(batch)
    return ScheduleGPipe(stage, count)
"""


def test_the_second_argument_of_a_schedule_is_that_number() -> None:
    case = Case(made_calls(OF_ROWS, {rank: [("barrier", [(3, "build")])] for rank in (0, 1)}))
    assert [test.source for answer in number_set_by(case.sources) for test in answer.tests] == ["if batch is None:"]
