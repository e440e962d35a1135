"""Every saved case gets the verdict it was reviewed for. Add one with tests/add_case.py."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
import sys
from pathlib import Path

import pytest
from published_schema import SCHEMA, faults

from hangdoc import api
from hangdoc.model.codec import diagnosis_document, snapshot_from_bytes
from hangdoc.report.terminal import render

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from add_case import DATA, add_case, expectation  # noqa: E402

from hangdoc.errors import BadSnapshot, UsageError  # noqa: E402

CASES = sorted(DATA.glob("*.hangdoc"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    document = diagnosis_document(api.diagnose(path))
    assert expectation(document) == json.loads(path.with_suffix(".json").read_text())
    assert faults(document, SCHEMA) == []


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_odd_data_gets_a_verdict_all_the_same(path):
    """Values replaced by others of their type: absurd, valid, and no reason for a traceback."""
    chance = random.Random(path.stem)
    document = json.loads(gzip.decompress(path.read_bytes()))
    places = [place for place in leaves(document) if len(place) > 1]
    diagnosed = 0
    for count in (1, 1, 2, 3, 30, 300):
        changed = copy.deepcopy(document)
        for container, key in (locate(changed, chance.choice(places)) for _ in range(count)):
            if container is not None:
                container[key] = other(container[key], chance)
        with contextlib.suppress(BadSnapshot):
            diagnosis = api.diagnose(snapshot_from_bytes(json.dumps(changed).encode()))
            assert render(diagnosis)
            assert faults(diagnosis_document(diagnosis), SCHEMA) == []
            diagnosed += 1
    assert diagnosed


def leaves(value, place=()):
    """The place of everything in ``value`` that is not a dict."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
        return
    yield place
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))


def locate(document, place):
    """The container of ``place`` and its key there; (None, None) where an earlier change removed it."""
    try:
        for key in place[:-1]:
            document = document[key]
        document[place[-1]]
    except (KeyError, IndexError, TypeError):
        return None, None
    return document, place[-1]


def other(value, chance):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((-1, 0, 1, value + 1, 10**9))
    if isinstance(value, float):
        return chance.choice((-1.0, 0.0, 1e300))
    if isinstance(value, str):
        return chance.choice(("", "\u202e", "x", "/a/b.py", "MainThread", "T", "<string>"))
    if isinstance(value, list):
        return chance.choice(([], value[:1], value[::-1], value + value))
    return value


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
