"""What a pipeline's number of micro-batches is computed from."""

from __future__ import annotations

import pytest
from helpers.made_calls import made_calls

from hangdoc.diagnosis.condition.given_micro_batches import computed_from
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
