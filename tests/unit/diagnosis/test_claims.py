"""Every clause of a message is a claim: stock phrases that nothing has shown, and our own jargon, are not printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_no_sentences import DIAGNOSIS

from hangdoc.diagnosis.frames.landmarks import _table

UNSEEN = (
    "drop_last",  # only a loader whose length was read could say so
    "nothing is broken",
    "no rank waits for another",
    "outside the job",
    "no code is to blame",
    "no rank's code",
    "they diverged earlier",
    "do not iterate over sets",
    "give every recv its partner",
)
JARGON = ("parted", "came by", "stands behind", "the facts allow", "in other state", "has the like", "synchronis")


def sentences(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that people may read: all but docstrings."""
    for node in ast.walk(tree):
        children = list(ast.iter_child_nodes(node))
        for child in children:
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not isinstance(node, ast.Expr):
                yield child.value


@pytest.mark.parametrize("path", sorted((DIAGNOSIS / "causes").glob("*.py")), ids=lambda path: path.stem)
def test_no_message_claims_what_was_not_seen(path: Path) -> None:
    said = [text for text in sentences(ast.parse(path.read_text())) if " " in text]
    assert [text for text in said for phrase in (*UNSEEN, *JARGON) if phrase in text.lower()] == []


def test_the_words_of_a_library_that_communicates_are_one_clause() -> None:
    """'FSDP gathers parameters', and not all that the line might be."""
    said = [mark.words for mark in _table() if mark.implicit]
    said += [words for mark in _table() for _, words in mark.by_operation]
    assert [
        words for words in said if " or " in words or "synchronis" in words or re.match("[a-z]+ing\\b", words)
    ] == []
