"""The line that ends what a process polls for."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.polls import what_ends_polling
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/publish.py"
SOURCE = """\
def publish(state, epoch):
    save(state, FOLDER / f"{epoch}.tmp")
    (FOLDER / f"{epoch}.tmp").rename(FOLDER / f"{epoch}.pt")

def take(epoch):
    path = FOLDER / f"{epoch}.pt"
    while not path.exists():
        time.sleep(0.2)
"""
OTHER = """
def sweep(epoch):
    (FOLDER / f"{epoch}.old").write_text(epoch)
"""


@pytest.mark.parametrize(("source", "line"), [(SOURCE, 3), (SOURCE + OTHER, None)])
def test_of_lines_in_one_function_the_last_puts_the_file_into_its_place(source: str, line: int | None) -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, source),))
    ending = what_ends_polling(sources, (Frame(FILE, 8, "take"),))
    assert (ending.at.line if ending is not None else None) == line
