"""Does an `if` decide whether an exchange begins with a send or with a recv?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.first_message import first_message_under
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/pairs.py"
SEND, RECV = "dist.send(mine, peer)", "dist.recv(theirs, peer)"
HEAD = "def exchange(mine, theirs, peer):\n    if {}:\n"
IN_ELSE = f"        {SEND}\n        {RECV}\n    else:\n        {RECV}\n        {SEND}\n"
BEHIND = f"        {SEND}\n        {RECV}\n        return\n    {RECV}\n    {SEND}\n"


def told(body: str, line: int, test: str = "size >= other") -> tuple[int, str] | None:
    sources = Sources((SourceText(FILE, "exchange", 1, HEAD.format(test) + body),))
    found = first_message_under(sources, (Frame(FILE, line, "exchange"),))
    return (found.line, found.source) if found is not None else None


@pytest.mark.parametrize(("body", "line"), [(IN_ELSE, 3), (IN_ELSE, 6), (BEHIND, 3), (BEHIND, 6)])
def test_either_way_of_it(body: str, line: int) -> None:
    assert told(body, line) == (2, "if size >= other:")


@pytest.mark.parametrize("line", [4, 7])
def test_none_for_the_second_message(line: int) -> None:
    assert told(IN_ELSE, line) is None


@pytest.mark.parametrize("other", [SEND, "self.exchange_all()", "pass"])
def test_none_where_both_ways_begin_alike(other: str) -> None:
    assert told(f"        {SEND}\n    else:\n        {other}\n", 3) is None


@pytest.mark.parametrize("test", ["STAGGERED", "rank == 0 and STAGGERED", "not self.STAGGERED"])
def test_none_for_what_is_set_for_the_whole_program(test: str) -> None:
    assert told(IN_ELSE, 3, test) is None
