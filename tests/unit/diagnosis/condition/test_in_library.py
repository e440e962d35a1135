"""Which of a library's own conditions may keep a rank from the call below the user's line?"""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.in_library import conditions_in_library
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

LIBRARY = "/venv/lib/python3.11/site-packages/somelib/optim.py"
USERS = "/home/me/train.py"
STEP = """
def step(self, found, closure=None):
    if {condition}:
        return self.inner.step()
    return None
"""


def conditions(text: str, *lines: int) -> list[str]:
    text = textwrap.dedent(text).strip("\n")
    users = SourceText(USERS, "<module>", 1, "if loss > 3:\n    f()")
    sources = Sources((SourceText(LIBRARY, "<module>", 1, text), users))
    called = Frame("/venv/lib/python3.11/site-packages/torch/x.py", 9, "broadcast")
    stack = (called, *(Frame(LIBRARY, line, "step") for line in lines), Frame(USERS, 2, "<module>"))
    return [each.source for each in conditions_in_library(sources, stack)]


@pytest.mark.parametrize(
    "condition",
    [
        "not sum([v.item() for v in found.values()])",
        "self.steps % self.period == 0",
        "state.sync_gradients",
        "closure is None and not torch.isnan(found)",
        "found.numel() == 0",
    ],
)
def test_of_data_and_counts(condition: str) -> None:
    assert conditions(STEP.format(condition=condition), 3) == [f"if {condition}:"]


@pytest.mark.parametrize(
    "condition",
    [
        "closure is not None",
        "isinstance(found, Tensor)",
        "hasattr(self.inner, 'step') and callable(self.inner.step)",
        "all(isinstance(x, Tensor) for x in found)",
        "self.overlap",
        "self.kind == 'adam'",
        "self.stage == Stage.READY",
        "found.ndim == 0",
        "self.rank == 0",
        "world_size > 1",
        "self.is_trainable()",
    ],
)
def test_not_of_types_options_and_the_rank(condition: str) -> None:
    assert conditions(STEP.format(condition=condition), 3) == []


def test_not_what_raises_nor_what_the_user_wrote() -> None:
    text = """
    def step(self, found):
        if len(found) == 0:
            raise RuntimeError
        return self.inner.step()
    """
    assert conditions(text, 4) == []


def test_the_nearest_to_the_call_first_and_at_most_two() -> None:
    text = """
    def step(self, found):
        if found > 1:
            return inner(found)
    def inner(found):
        if found > 2:
            return innermost(found)
    def innermost(found):
        if found > 3:
            return call(found)
    """
    assert conditions(text, 9, 6, 3) == ["if found > 3:", "if found > 2:"]
