"""The form of what a person expects of the saved cases. See tests/cases.py."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from cases import case, fault_of, names, row

from hangdoc import api

PLAIN = {"outcome": "hang", "cause": "HD101", "culprits": [1], "lines": ["train.py:3"]}
CONDITION = {"form": "predicate", "at": ["train.py:34"], "text": "if self.stale:", "also": ["train.py:51"]}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({}, ""),
        ({"expected_failure": "why"}, ""),
        ({"condition": CONDITION, "reviewed": True, "origin": "held-out 12"}, ""),
        ({"condition": None, "reviewed": True, "origin": "scenario"}, ""),
        ({"origin": "held-out 6/7"}, ""),
        ({"origin": "dumps"}, ""),
        ({"origin": "held-out"}, "no origin"),
        ({"origin": "held-out 6/"}, "no origin"),
        ({"conditions": None, "reviewed": True}, "unknown: conditions"),
        ({"condition": CONDITION}, "beside each other"),
        ({"condition": CONDITION, "reviewed": False}, "beside each other"),
        ({"reviewed": True}, "beside each other"),
        ({"condition": {**CONDITION, "form": "none"}, "reviewed": True}, "has form"),
        ({"condition": {"form": "value", "at": ["train.py:34"]}, "reviewed": True}, "has form"),
        ({"condition": {**CONDITION, "note": ""}, "reviewed": True}, "has form"),
        ({"condition": {**CONDITION, "at": []}, "reviewed": True}, "places such as"),
        ({"condition": {**CONDITION, "text": ""}, "reviewed": True}, "places such as"),
        ({"condition": {**CONDITION, "at": ["/job/train.py:34"]}, "reviewed": True}, "places such as"),
        ({"condition": {**CONDITION, "also": ["train.py"]}, "reviewed": True}, "places such as"),
        ({"condition": {**CONDITION, "also": ["train.py:34"]}, "reviewed": True}, "twice"),
    ],
)
def test_a_fault_of_a_row_is_told(more, fault):
    found = fault_of({**PLAIN, **more})
    assert (fault in found) if fault else not found


def test_every_row_has_the_form_of_one():
    assert {name: fault for name in names() if (fault := fault_of(row(name)))} == {}


def test_a_reviewed_condition_lies_in_a_file_of_the_case():
    """A condition in a file that the snapshot does not hold could never be told."""
    for name in names():
        condition = row(name).get("condition")
        if condition:
            files = {PurePosixPath(source.file).name for source in api.load(case(name)).sources}
            assert {place.rpartition(":")[0] for place in condition["at"]} <= files, name
