"""Where the queue is filled that an item was taken from."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.taken import filled_by
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/job/writer.py"
TAKES = """
class Writer:
    def run(self):
        while True:
            item = self.inbox.get()
            if item is None:
                return
            self.write(item)
"""


def filled(program: str, line: int = 5) -> list[tuple[str, list[tuple[int, str]]]]:
    """(function, its conditions) of what fills the queue whose item is tested at that line."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))
    return [(f.function, [(c.line, c.source) for c in f.under]) for f in filled_by(sources, FILE, line)]


def test_a_handler_that_leaves_the_item_out() -> None:
    program = """
    def offer(self, item):
        try:
            self.inbox.put_nowait(item)
        except queue.Full:
            self.dropped += 1
    def close(self):
        self.inbox.put(None)
    """
    assert filled(TAKES + textwrap.dedent(program)) == [("offer", [(12, "except queue.Full:")])]


def test_a_condition() -> None:
    program = """
    def offer(writer, item):
        if item.numel() > 4:
            writer.inbox.put(item)
    """
    assert filled(TAKES + textwrap.dedent(program)) == [("offer", [(10, "if item.numel() > 4:")])]


@pytest.mark.parametrize(
    "put",
    [
        "def offer(self, item):\n    self.inbox.put(item)\n",
        "def offer(self, item):\n    if rank == 0:\n        self.inbox.put(item)\n",
        "def offer(self, item):\n    if item:\n        self.outbox.put(item)\n",
        "def offer(self):\n    try:\n        self.inbox.put(1)\n    except Full:\n        raise\n",
    ],
)
def test_what_does_not_decide(put: str) -> None:
    assert filled(TAKES + put) == []


def test_an_item_that_is_no_last_word() -> None:
    put = "def offer(self, item):\n    if item:\n        self.inbox.put(item)\n"
    assert filled(TAKES.replace("item is None", "item.cancelled") + put) == []
