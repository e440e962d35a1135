"""What changes the name under which a line sets a key, from sources alone."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.key_names import renamed_before, sets_key_named_at
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


@pytest.mark.parametrize(
    ("key", "alike"),
    [
        ('f"snapshot/{step}/{self.rank}"', True),
        ('f"snapshot/{step}"', False),
        ('f"{step}/{self.rank}"', False),
        ('"snapshot"', False),
    ],
)
def test_a_key_of_the_same_text(key: str, alike: bool) -> None:
    text = (
        'def commit(self, step):\n    keys = [f"snapshot/{step}/{r}" for r in self.ranks]\n    self.watch.wait(keys)\n'
    )
    sources = Sources((SourceText("a.py", "commit", 1, text),))
    call = ast.parse(f"self.store.set({key}, '1')", mode="eval").body
    assert isinstance(call, ast.Call)
    assert sets_key_named_at(sources, Frame("a.py", 3, "commit"), call) is alike
