"""The condition by which a main thread goes on beside a thread that it started."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.beside import goes_on_beside
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/save.py"
PROGRAM = """
def _write(self, data):
    dist.barrier()

def drain(self):
    if self.future is not None:
        self.future.result()

def save(self, data):
    {body}
"""
START = "self.future = self.pool.submit(self._write, data)"


@pytest.mark.parametrize(
    "body, condition",
    [
        (f"{START}\n    if len(data) < self.limit:\n        self.future.result()", "if len(data) < self.limit:"),
        (f"{START}\n    if len(data) >= self.limit:\n        return\n    self.drain()", "if len(data) >= self.limit:"),
        (f"if data.large:\n        {START}", None),  # the others have no such thread, and no such call
        (f"self.drain()\n    {START}", None),
        (f"{START}\n    if self.cfg.wait:\n        self.drain()", None),  # alike on all ranks
        (f"{START}\n    text = ', '.join(data)", None),
        ("self._write(data)", None),
    ],
)
def test_what_decides_that_a_thread_is_waited_for(body: str, condition: str | None) -> None:
    text = textwrap.dedent(PROGRAM).lstrip("\n").replace("{body}", body)
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    found = goes_on_beside(sources, (Frame(FILE, 2, "_write"),))
    assert (found.source if found is not None else None) == condition
