"""Whom do the messages of a function name, and what decides that?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.own_peers import decided_around
from hangdoc.diagnosis.context import Case
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/job/halo.py"
HEAD = "def exchange(edge, boxes, own):\n    near = [r for r, box in enumerate(boxes) if own.touches(box)]\n"
COMPREHENSION = "    for each in [dist.isend(edge, peer) for peer in near]:\n        each.wait()\n"
LOOP = "    for peer in near:\n        dist.send(edge, dst=peer)\n"


def told(body: str) -> list[tuple[int, str]]:
    sources = (SourceText(FILE, "<module>", 1, HEAD + body),)
    case = Case(JobSnapshot(taken=0.0, mode="attach", sources=sources))
    return [(each.line, each.source) for each in decided_around(case, (Frame(FILE, 4, "exchange"),))]


@pytest.mark.parametrize(
    "body", [LOOP.replace("dst=peer", "dst=0"), LOOP.replace("near", "range(3)"), "    x = 1\n    y()\n"]
)
def test_who_is_named_without_a_choice(body: str) -> None:
    assert told(body) == []
