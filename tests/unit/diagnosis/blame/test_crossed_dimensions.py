"""Dimensions of a mesh, by their groups; and how many micro-batches a schedule shows."""

from __future__ import annotations

from hangdoc.diagnosis.blame.crossed_dimensions import dimension_of

SCHEDULE = "/python/lib/python3.11/site-packages/torch/distributed/pipelining/schedules.py"


def test_rows_of_one_dimension_are_alike() -> None:
    assert dimension_of("mesh_shard0", (0, 1, 2, 3)) == dimension_of("mesh_shard4", (4, 5, 6, 7))
    assert dimension_of("undefined", (0, 4)) == dimension_of("undefined", (3, 7))


def test_other_dimensions_are_not() -> None:
    assert dimension_of("undefined", (0, 4)) != dimension_of("undefined", (0, 1))
    assert dimension_of("mesh_tp", (0, 1)) != dimension_of("mesh_dp", (0, 1))
