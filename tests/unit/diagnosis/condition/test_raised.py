"""Where what a handler catches is raised."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.caught import Caught
from hangdoc.diagnosis.condition.elsewhere.raised import raised_under
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/serve.py"
PROGRAM = """
class NoFreeBlocks(RuntimeError):
    pass

def allocate(need):
    if need > free:
        raise NoFreeBlocks(need)

def unrelated(x):
    if x is None:
        raise NoFreeBlocks(0)

def handle(request):
    tell(request)
    if request.late:
        raise KeyError(request)
    allocate(request.need)

def serve():
    for request in inbox:
        try:
            handle(request)
        except {caught}:
            pass
"""


@pytest.mark.parametrize(
    "caught, conditions",
    [
        ("NoFreeBlocks", ["if need > free:"]),
        ("RuntimeError", ["if need > free:"]),
        ("Exception", ["if request.late:", "if need > free:"]),
        ("OSError", []),
    ],
)
def test_what_the_block_raises_of_what_its_handler_catches(caught: str, conditions: list[str]) -> None:
    text = textwrap.dedent(PROGRAM).lstrip("\n").replace("{caught}", caught)
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    frame = Frame(FILE, 21, "serve")
    (by,) = swallowing(sources, frame)
    assert [each.source for each in raised_under(sources, Caught(by, frame))] == conditions
