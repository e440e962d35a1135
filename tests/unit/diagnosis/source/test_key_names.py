"""What changes the name under which a line sets a key, from sources alone."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.key_names import sets_key_named_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

SET = "    store.set(key, address)\n"


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
