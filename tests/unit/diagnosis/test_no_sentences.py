"""English is output only: no decision of the diagnosis compares, searches or takes apart a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hangdoc.diagnosis

DIAGNOSIS = Path(hangdoc.diagnosis.__file__).parent
SENTENCES = frozenset(
    {"text", "why", "verdict", "sure", "fix", "doubt", "landmark", "words", "doing", "advice", "told"}
)
"""Attributes that hold words for people."""
PARSING = frozenset({"startswith", "endswith", "find", "index", "split", "rsplit", "partition", "rpartition", "count"})
SEARCHING = frozenset({"search", "match", "fullmatch", "findall", "finditer"})
SOURCES = frozenset({"items.py", "sources.py", "syntax.py"})
"""Where ``text`` is source, not a sentence."""


def decisions(tree: ast.AST) -> list[ast.AST]:
    """The places that compare a sentence, or look into one."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            empty = any(isinstance(side, ast.Constant) and side.value in ("", None) for side in sides)
            found += [node] if not empty and any(is_sentence(side) for side in sides) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looks_into = node.func.attr in PARSING and is_sentence(node.func.value)
            searches = node.func.attr in SEARCHING and any(is_sentence(argument) for argument in node.args)
            found += [node] if looks_into or searches else []
    return found


def is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


RULES = sorted((DIAGNOSIS / "causes").glob("*.py"))
WRITTEN_ELSEWHERE = frozenset({"name_ranks", "fold_ranks", "FileNames", "Writer"})


def finished(tree: ast.AST) -> list[ast.AST]:
    """The places where a rule writes by itself what the writer of messages writes: names of ranks and of files, the
    first letter of a sentence, clauses in a row."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        imported = isinstance(node, ast.ImportFrom) and not WRITTEN_ELSEWHERE.isdisjoint(a.name for a in node.names)
        called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        capital = called is not None and called.attr in ("upper", "capitalize", "title")
        between = called.value if called is not None and called.attr == "join" else None
        clauses = isinstance(between, ast.Constant) and between.value in ("; ", " and ", " or ")
        found += [node] if imported or capital or clauses else []
    return found


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_rule_names_parts_and_writes_no_sentence(path):
    found = finished(ast.parse(path.read_text()))
    assert [f"{path.name}:{node.lineno}: {ast.unparse(node)}" for node in found] == []


@pytest.mark.parametrize(
    "line",
    ["from hangdoc.model.wording import name_ranks", "text[:1].upper() + text[1:]", "'; '.join(clauses)"],
)
def test_the_check_of_rules_can_fail(line):
    assert finished(ast.parse(line))


@pytest.mark.parametrize(
    "path", [path for path in sorted(DIAGNOSIS.rglob("*.py")) if path.name not in SOURCES], ids=lambda path: path.stem
)
def test_no_decision_reads_a_sentence(path):
    found = decisions(ast.parse(path.read_text()))
    assert [f"{path.name}:{node.lineno}: {ast.unparse(node)}" for node in found] == []


@pytest.mark.parametrize(
    "line",
    [
        "activity.text == NATIVE_CALL",
        "'backward' in mark.words",
        "finding.why.startswith('the ')",
        "re.search('lock', activity.text)",
    ],
)
def test_the_check_can_fail(line):
    assert decisions(ast.parse(line))


@pytest.mark.parametrize("line", ["activity.text == ''", "f'{activity.text}'", "name in names", "file.startswith('/')"])
def test_the_check_lets_output_pass(line):
    assert not decisions(ast.parse(line))
