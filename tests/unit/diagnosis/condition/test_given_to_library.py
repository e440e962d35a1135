"""What the user's code gives a library by which the library communicates, ends its loop or leaves something out."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.contexts import flags_chosen
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"


def sources_of(text: str, file: str = FILE) -> Sources:
    return Sources((SourceText(file, "<module>", 1, textwrap.dedent(text).strip("\n")),))


def flags(text: str, line: int) -> list[str]:
    frame = Frame(FILE, line, "save")
    return [flag.guard.condition for flag in flags_chosen(sources_of(text), (frame,), (frame,), 0)]


def test_a_flag_of_the_call_itself() -> None:
    assert flags("def save(self):\n    dcp.save(state, no_dist=self.local_only)", 2) == ["no_dist=self.local_only"]


@pytest.mark.parametrize("given", ["no_dist=True", "no_dist=no_dist", "planner=self.planner"])
def test_what_decides_nothing_there(given: str) -> None:
    """A constant, what the caller gave, and an argument that says nothing of communicating."""
    assert flags(f"def save(self, no_dist):\n    dcp.save(state, {given})", 2) == []


def test_a_flag_in_options_that_the_call_is_given() -> None:
    export = """
    def save(self, model):
        options = StateDictOptions(full_state_dict=self.writes, cpu_offload=True)
        return get_model_state_dict(model, options=options)
    """
    assert flags(export, 3) == ["full_state_dict=self.writes"]


def test_a_flag_of_the_context_around_the_call() -> None:
    step = """
    def save(self, rows):
        with self.fabric.no_backward_sync(self.model, enabled=self.plan.collecting(rows)):
            self.fabric.backward(self.model(rows))
    """
    assert flags(step, 3) == ["enabled=self.plan.collecting(rows)"]
