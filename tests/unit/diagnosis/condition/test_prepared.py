"""Messages that a list holds when it is issued: the lines that put them there."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.prepared import prepared_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/exchange.py"
TORCH = "/python/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def prepared(program: str, way: str = "isend", by: str = "batch_isend_irecv") -> list[tuple[int, str]]:
    """(line, function) of what may have prepared a message that is issued in ``by``, on line 1 of the program."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))
    stack = (Frame(TORCH, 2, way), Frame(TORCH, 1, by), Frame(FILE, 1, "exchange"))
    return [(frame.line, frame.function) for frame in prepared_at(sources, stack)]


TWO_WAYS = """
def send_ops(self):
    if self.rows:
        yield dist.P2POp(dist.isend, self.rows, self.peer)
def recv_ops(self):
    yield P2POp(op=dist.irecv, tensor=self.buffer, peer=self.peer)
"""


@pytest.mark.parametrize(("way", "found"), [("isend", [(3, "send_ops")]), ("irecv", [(5, "recv_ops")])])
def test_each_direction_has_a_line_of_its_own(way: str, found: list[tuple[int, str]]) -> None:
    assert prepared(TWO_WAYS, way) == found


def test_one_line_for_both_directions() -> None:
    program = """
    def op(self, send):
        return P2POp(dist.isend if send else dist.irecv, self.x, self.peer)
    """
    assert prepared(program, "irecv") == [(2, "op")]
    assert prepared("def op(f):\n    return P2POp(f, x, 1)\n") == [(2, "op")]


def test_a_message_of_its_own_was_not_prepared_elsewhere() -> None:
    assert prepared(TWO_WAYS, by="exchange") == []


def test_of_many_lines_none_is_named() -> None:
    line = "    P2POp(dist.isend, x, {})\n"
    assert prepared("def ops():\n" + "".join(line.format(peer) for peer in range(3))) == []
