"""Every saved case gets the verdict it was reviewed for. Add one with tests/add_case.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hangdoc import api
from hangdoc.model.codec import diagnosis_document

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from add_case import DATA, add_case, expectation  # noqa: E402

from hangdoc.errors import BadSnapshot, UsageError  # noqa: E402

CASES = sorted(DATA.glob("*.hangdoc"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    found = expectation(diagnosis_document(api.diagnose(path)))
    assert found == expected


def test_every_case_has_its_expectation():
    assert {path.stem for path in CASES} == {path.stem for path in DATA.glob("*.json")}


def test_a_case_is_added_once_and_under_a_plain_name(tmp_path):
    (tmp_path / "bad").write_bytes(b"bad")
    with pytest.raises(BadSnapshot):
        add_case(tmp_path / "bad", "new", tmp_path)
    with pytest.raises(UsageError):
        add_case(tmp_path / "bad", "../new", tmp_path)
    (tmp_path / "old.json").touch()
    with pytest.raises(UsageError):
        add_case(tmp_path / "bad", "old", tmp_path)
