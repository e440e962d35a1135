"""What decides on which actors a driver calls a step, where no condition is around the call."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.causes.idle_actors import chosen_at
from hangdoc.model.process import Frame

DRIVER = """def distribute(self, version):
    {first}
    ray.get([self.workers[i].sync.remote(version) for i in {over}])
"""


@pytest.mark.parametrize(
    ("first", "over", "found"),
    [
        ("late = [0] + self.outdated(version)", "late", [("late = [0] + self.outdated(version)", 2)]),
        ("late = [0]; late = late + self.more()", "late", []),
        ("late = self.outdated(version)", "self.all", []),
    ],
    ids=["set once", "set twice", "another list"],
)
def test_what_the_calls_go_over(first: str, over: str, found: list[tuple[str, int]]) -> None:
    tree = ast.parse(DRIVER.format(first=first, over=over))
    assert [(each.source, each.line) for each in chosen_at(Frame("run.py", 3, "distribute"), tree)] == found
