"""What changes the name under which a line sets a key, from sources alone."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.key_names import renamed_before
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

SET = "    store.set(key, address)\n"


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("    key = name_of(agent)\n    if style:\n        key = key.lower()\n", [4]),
        ("    if style:\n        key = agent.dns\n    else:\n        key = agent.path\n", [3, 5]),
        ("    key = name_of(agent)\n    if style:\n        address = address.lower()\n", []),
        ("    key = name_of(agent)\n", []),
    ],
)
def test_the_statements_that_give_a_key_another_name(before: str, lines: list[int]) -> None:
    text = f"def register(store, agent, address, style):\n{before}{SET}"
    found = renamed_before(
        Sources((SourceText("a.py", "register", 1, text),)), Frame("a.py", text.count("\n"), "register")
    )
    assert [line for line, _ in found] == lines
