"""On which ranks, and for which events, was the handler registered that only one side is in?"""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/somelib/engine.py"
RUN = Frame(LIBRARY, 9, "Engine.run"), Frame(FILE, 40, "main")
STEP: Stack = (Frame(FILE, 30, "step"), Frame(LIBRARY, 11, "Engine.step"), *RUN)


def conditions(text: str, inside: str = "dump", other: Stack = STEP) -> list[str]:
    """The conditions by which rank 0 alone is in that handler, which the library called."""
    lines = textwrap.dedent(text).strip("\n").splitlines()
    padded = [*lines, *["pass"] * (60 - len(lines))]  # so that the stacks' lines are of this file
    sources = Sources((SourceText(FILE, "<module>", 1, "\n".join(padded)),))
    stack = (Frame(FILE, 50, inside), Frame(LIBRARY, 20, "Engine.fire"), *RUN)
    values = Values(JobSnapshot(taken=1.0, mode="watch"))
    return [p.guard.condition for p in diverging_guards(sources, values, (stack, other), ((0,), (1, 2)))]


FILTERED = "engine.add_event_handler(Events.STARTED(event_filter=spike), self.dump)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if rank == 0:\n    engine.add_event_handler(Events.STARTED, self.dump)", ["if rank == 0:"]),
        (FILTERED, ["event_filter=spike"]),
        ("engine.add_event_handler(Events.STARTED(spike), dump)", ["Events.STARTED(spike)"]),
        ("@engine.on(Events.STARTED(event_filter=spike))\ndef dump(engine):\n    pass", ["event_filter=spike"]),
        ("def main():\n    if rank == 0:\n        @engine.on(Events.STARTED)\n        def dump(e):\n            pass",
         ["if rank == 0:"]),
        ("if verbose:\n    engine.add_event_handler(Events.STARTED, self.dump)", []),
        ("def log(dump):\n    if rank == 0:\n        print(dump)", []),
        (f"{FILTERED}\nengine.add_event_handler(Events.COMPLETED, self.dump)", []),
    ],
)  # fmt: skip
def test_what_decides_where_the_handler_runs(text: str, expected: list[str]) -> None:
    assert conditions(text) == expected


def test_nothing_where_the_other_side_is_in_the_handler_as_well() -> None:
    assert conditions(FILTERED, other=(Frame(FILE, 52, "dump"), Frame(LIBRARY, 20, "Engine.fire"), *RUN)) == []
