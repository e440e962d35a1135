"""What decides how many items a loop finds in a container?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.loops.held import items_of_value
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        ([(3, "if device.free > self.need")], "[device for device in find() if device.free > self.need]"),
        ([], "list(find())"),
    ],
)
def test_what_decides_a_count_of_processes(expected: list[tuple[int, str]], returned: str) -> None:
    program = f"""\
class Launcher:
    def usable(self):
        return {returned}
    def start(self):
        devices = self.usable()
        spawn(train, args=(devices,), nprocs=len(devices))
"""
    sources = Sources((SourceText(FILE, "<module>", 1, program),))
    (call,) = sources.user_calls("spawn")
    found = items_of_value(sources, FILE, call.function, call.call.keywords[1].value)
    assert [(each.line, each.source) for each in found] == expected
