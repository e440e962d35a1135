"""Dimensions of a mesh, by their groups; and how many micro-batches a schedule shows."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.blame.crossed_dimensions import dimension_of
from hangdoc.diagnosis.messages.uneven_loop import rounds_of_schedule
from hangdoc.model.process import Frame, Local

SCHEDULE = "/python/lib/python3.11/site-packages/torch/distributed/pipelining/schedules.py"


def test_rows_of_one_dimension_are_alike() -> None:
    assert dimension_of("mesh_shard0", (0, 1, 2, 3)) == dimension_of("mesh_shard4", (4, 5, 6, 7))
    assert dimension_of("undefined", (0, 4)) == dimension_of("undefined", (3, 7))


def test_other_dimensions_are_not() -> None:
    assert dimension_of("undefined", (0, 4)) != dimension_of("undefined", (0, 1))
    assert dimension_of("mesh_tp", (0, 1)) != dimension_of("mesh_dp", (0, 1))


@pytest.mark.parametrize(
    ("name", "value", "rounds"),
    [
        ("kwarg_mbs", "[{}, {}]", 2),
        ("kwarg_mbs", "[{'a': (1, 2)}, {}, {}]", 3),
        ("num_microbatches", "6", 6),
        ("arg_mbs", "[(<Tensor>), (<Tensor>)]", 0),
        ("kwarg_mbs", "[{}, {}, …]", 0),
        ("kwarg_mbs", "[]", 0),
        ("losses", "[1, 2]", 0),
    ],
)
def test_the_rounds_of_a_schedule(name: str, value: str, rounds: int) -> None:
    inside = Frame(SCHEDULE, 938, "ScheduleGPipe._step_microbatches", (Local(name, value),))
    assert rounds_of_schedule((inside, Frame("/job/a.py", 3, "f"))) == rounds
