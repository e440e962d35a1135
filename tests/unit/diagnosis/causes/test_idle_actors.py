"""What decides on which actors a driver calls a step, where no condition is around the call."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.causes.idle_actors import chosen_at, left_out_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

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


TRUSTED = """\
class Driver:
    def trusted(self):
        return [w for w in self.workers if w.kl < self.limit]
    def run(self):
        ray.get([w.round.remote() for w in {over}])
"""


@pytest.mark.parametrize(("over", "found"), [("self.trusted()", [("if w.kl < self.limit", 3)]), ("self.workers", [])])
def test_what_a_function_leaves_out_of_the_actors_that_are_called(over: str, found: list[tuple[str, int]]) -> None:
    sources = Sources((SourceText("run.py", "<module>", 1, TRUSTED.format(over=over)),))
    (call,) = sources.user_calls("remote")
    at = Frame("run.py", call.call.lineno, "run")
    assert [(each.source, each.line) for each in left_out_at(sources, at, call.function)] == found
