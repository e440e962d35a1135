"""What can have led a thread out of its loop?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.loops.leading_out import leading_out
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
WRITER = """\
def run(self):
    while True:
        item = self.jobs.get()
        if item is None:
            return
        for part in item:
            if part.empty():
                break
        try:
            self.write(item)
        except DiskFull:
            return
"""
AROUND = """\
def run(self):
    try:
        while not self.stopped:
            item = self.jobs.get()
            self.write(item)
    except OSError:
        log()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WRITER, [(11, "except DiskFull:")]),
        (WRITER.replace("DiskFull:\n            return", "DiskFull:\n            continue"), []),
        (WRITER.replace("part.empty()", "self.full"), [(11, "except DiskFull:")]),
        (WRITER.replace("break", "return"), [(11, "except DiskFull:"), (7, "if part.empty():")]),
        (AROUND, [(6, "except OSError:"), (3, "while not self.stopped:")]),
        ("while (item := jobs.get()) is not None:\n    write(item)\n", []),
        ("def run(self):\n\n    item = self.jobs.get()\n", []),
    ],
)
def test_handlers_come_before_tests(text: str, found: list[tuple[int, str]]) -> None:
    line = next(n for n, each in enumerate(text.splitlines(), 1) if "get()" in each)
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    assert [(each.line, each.source) for each in leading_out(sources, Frame(FILE, line, "run"))] == found
