"""Jobs that stand still for longer than the threshold and are healthy: no hang may be raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from healthy_jobs import ends_by_itself, two_of

if TYPE_CHECKING:
    from conftest import Watch


@pytest.mark.parametrize(
    ("command", "expected"),
    [(two_of("saves.py"), ((0,), "HD501")), (two_of("serves.py"), ((0,), ""))],
    ids=["saves", "serves"],
)
def test_a_slow_but_healthy_job_ends_by_itself(
    command: list[str], expected: tuple[tuple[int, ...], str], watch: Watch
) -> None:
    ends_by_itself(watch, command, expected)
