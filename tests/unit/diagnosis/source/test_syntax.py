"""How expressions read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.diagnosis.source import syntax
from hangdoc.diagnosis.source.syntax import children, text_of, walk

PLAIN = st.sampled_from(["a", "b.c", "d(e)", "f[0]", "len(g) > 1", "(not h) == i", "j(not k)", "(l, not m)"])
WORDS = st.text(st.characters(exclude_categories=["Z", "C"]), max_size=6)
FORMATTED = st.sampled_from(
    ["f'{n}'", "f'{o[\"p\"]} q'", "f\"{o['p']}'s\"", "f'{n!r:>{w}}' 'r'", "f'\\'{n}\\''", "f''"]
)
LEAVES = PLAIN | WORDS.map(repr) | WORDS.map(lambda word: repr(word.encode())) | FORMATTED


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    either = st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
    chosen = st.tuples(parts, parts, parts).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})")
    kept = parts.map(lambda part: f"[x for x in y if {part}]")
    return either | parts.map(lambda part: f"(not {part})") | chosen | kept


@given(st.recursive(LEAVES, joined, max_leaves=12))
def test_what_is_read_means_the_same(written: str) -> None:
    tree = ast.parse(written, mode="eval").body
    assert ast.dump(ast.parse(text_of(tree, 10_000), mode="eval").body) == ast.dump(tree)


@pytest.mark.parametrize(
    "written",
    [
        *(
            "a and not b",
            "not a and b",
            "a or not (b and c)",
            "(a or not b) and c",
            "a and (not b or c)",
            "[x for x in y if x and not z]",
        ),
        *(
            'batch["x"] is not None',
            'f"{key}.pt" in names',
            "say == 'a \"b\"'",
            'say == "it\'s"',
            'b"x" in y and "" in z',
        ),
    ],
)
def test_a_condition_reads_as_people_write_it(written: str) -> None:
    assert text_of(ast.parse(written, mode="eval").body) == written


def test_a_walk_is_that_of_the_standard_library_the_second_time_as_well() -> None:
    tree = ast.parse(Path(syntax.__file__).read_text())
    for _ in range(2):
        assert list(walk(tree)) == list(ast.walk(tree))
        assert all([*children(node)] == [*ast.iter_child_nodes(node)] for node in ast.walk(tree))
    assert ast.dump(tree) == ast.dump(ast.parse(Path(syntax.__file__).read_text()))
