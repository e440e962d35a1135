"""No commit changes what a person expects of the saved cases and the code that is to meet it, ever.

Whoever mends the code would else bend the expectation to what it says. A new case may come with the code, and the mark
of a failure that is no longer expected goes with it.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = ":(glob)tests/data/*/expected.json"
CODE = "hangdoc/"


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else ""


def bent(root: Path) -> list[str]:
    """'1a2b3c: NAME' for each case whose row a commit changed, or took out, that changed the code as well."""
    found = []
    for commit in git(root, "log", "--no-merges", "--format=%H", "--", TABLES).split():
        if git(root, "diff-tree", "--root", "--no-commit-id", "--name-only", "-r", commit, "--", CODE):
            before, after = rows(root, f"{commit}^", commit), rows(root, commit, commit)
            found += [f"{commit[:12]}: {name}" for name in sorted(before) if before[name] != after.get(name)]
    return found


def rows(root: Path, at: str, commit: str) -> dict[str, dict[str, Any]]:
    """What the tables that ``commit`` changed hold ``at`` a commit; a case may have gone from one to another."""
    found: dict[str, dict[str, Any]] = {}
    for path in git(root, "diff-tree", "--root", "--no-commit-id", "--name-only", "-r", commit, "--", TABLES).split():
        found |= json.loads(git(root, "show", f"{at}:{path}") or "{}")
    return {name: {key: row[key] for key in row if key != "expected_failure"} for name, row in found.items()}


def test_no_commit_bends_an_expectation_to_the_code():
    if Path(git(ROOT, "rev-parse", "--show-toplevel").strip() or "/") != ROOT:
        pytest.skip("no git history here")
    assert bent(ROOT) == []


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    commit = functools.partial(_commit, tmp_path)
    commit({"tests/data/HD101/expected.json": {"a": {"culprits": [1]}, "b": {"culprits": [0], "expected_failure": "x"}},
            "hangdoc/code.py": {}})  # fmt: skip
    return tmp_path, commit


def _commit(root: Path, files: dict[str, Any]) -> str:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps(content))
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a commit")
    return git(root, "rev-parse", "HEAD")[:12]


TABLE = "tests/data/HD101/expected.json"
KEPT = {"b": {"culprits": [0]}}
CHANGED_CODE = {"hangdoc/code.py": {"changed": True}}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({TABLE: {"a": {"culprits": [0]}, **KEPT}}, []),
        ({TABLE: {"a": {"culprits": [0]}, **KEPT}, **CHANGED_CODE}, ["a"]),
        ({TABLE: {"a": {"culprits": [1], "reviewed": True, "condition": None}, **KEPT}, **CHANGED_CODE}, ["a"]),
        ({TABLE: KEPT, **CHANGED_CODE}, ["a"]),
        ({TABLE: {"a": {"culprits": [1]}, **KEPT}, **CHANGED_CODE}, []),
        ({TABLE: {"a": {"culprits": [1]}, **KEPT, "c": {"culprits": [2]}}, **CHANGED_CODE}, []),
        ({TABLE: KEPT, "tests/data/HD102/expected.json": {"a": {"culprits": [1]}}, **CHANGED_CODE}, []),
        ({TABLE: KEPT, "tests/data/HD102/expected.json": {"a": {"culprits": [2]}}, **CHANGED_CODE}, ["a"]),
    ],
    ids=["alone", "with code", "reviewed", "taken out", "mark gone", "new case", "moved", "moved and changed"],
)
def test_a_commit_that_does_is_found(repository, files, names):
    root, commit = repository
    done = commit(files)
    assert bent(root) == [f"{done}: {name}" for name in names]
    commit({"hangdoc/code.py": {"later": True}})
    assert bent(root) == [f"{done}: {name}" for name in names]
