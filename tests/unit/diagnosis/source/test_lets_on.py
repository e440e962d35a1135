"""Lines that let a polling process go on, and who went past them."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.lets_on import skipped_lines, what_lets_on
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

PROGRAM = """\
class Gate:
    def enter(self):
        while self.store.add("…", 1) > self.limit:
            self.store.add("…", -1)
            time.sleep(1)

    def leave(self):
        self.store.add("…", -1)

def upload(gate, rows):
    if not rows:
        log("…")
        return 0
    gate.enter()
    try:
        put(rows)
        gate.leave()
    except OSError:
        log("…")
    if rows.last:
        log("…")
    return 1
"""


def test_what_another_method_does_to_the_same_store_lets_it_go_on() -> None:
    sources = Sources((SourceText("/job/a.py", "<module>", 1, PROGRAM),))
    found = what_lets_on(sources, (Frame("/job/a.py", 5, "Gate.enter"),))
    assert found == [Frame("/job/a.py", 8, "leave")]


@pytest.mark.parametrize(("line", "skipped"), [(12, [17]), (19, [17]), (21, []), (16, [])])
def test_an_early_return_and_a_handler_go_past_the_line(line: int, skipped: list[int]) -> None:
    assert skipped_lines(ast.parse(PROGRAM), line, [17]) == skipped


def test_of_many_lines_none_is_meant_and_names_that_are_set_again_and_again_end() -> None:
    settings = "".join(f"    x = step{at}(x) + x + box\n" for at in range(100))
    waits = "def wait(x, box):\n" + settings + "    while not x:\n        time.sleep(1)\n"
    few, many = ("def give(box):\n" + "    box.fill_(1)\n" * count for count in (2, 9))
    found = []
    for gives in (few, many):
        sources = Sources((SourceText("/job/a.py", "<module>", 1, waits + gives),))
        found.append(what_lets_on(sources, (Frame("/job/a.py", 103, "wait"),)))
    assert [each.line for each in found[0]] == [105, 106]
    assert found[1] == []
