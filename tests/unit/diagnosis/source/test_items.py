"""What a loop's items are called, and whether they still tell of its rounds."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.items import items_of_ended_loops

FUNCTION = """\
def exchange(self, peers):
    for peer in peers:
        self.works.append(dist.isend(x, peer))
    for work, kept in self.works:
        work.wait()
    return peers
"""


@pytest.mark.parametrize(("line", "ended"), [(3, {"work", "kept"}), (5, {"peer"}), (6, {"peer", "work", "kept"})])
def test_items_are_those_of_the_last_round_behind_their_loop(line: int, ended: set[str]) -> None:
    assert items_of_ended_loops(ast.parse(FUNCTION), line) == ended
