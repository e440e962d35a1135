"""The JSON document is exactly what the contract publishes."""

from __future__ import annotations

import dataclasses
import json
import math
import stat

import pytest
from sample_diagnosis import FILE, SAMPLE

from hangdoc import report
from hangdoc.errors import UsageError
from hangdoc.model.codec import diagnosis_document
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.report import document


class Either(tuple):
    """One of these shapes."""


RANKS = [int]
FRAME = {"file": str, "line": int, "function": str}
SIDE = {
    "ranks": RANKS,
    "group": {"name": str, "members": RANKS},
    "sequence": Either((int, None)),
    "thread": str,
    "op": str,
    "frame": Either((FRAME, None)),
    "stack": [FRAME],
    "note": str,
}
BRANCH = {
    "file": str,
    "line": int,
    "condition": str,
    "kind": str,
    "values": [
        {
            "name": str,
            "value": str,
            "ranks": RANKS,
            "seen": {"now", "at-divergence", "inferred-from-path"},
        }
    ],
}
SCHEMA = {
    "schema": {"hangdoc.diagnosis/1"},
    "outcome": {"hang", "slow", "crashed", "healthy", "blind"},
    "verdict": str,
    "cause": Either(({"code": str, "name": str, "title": str}, None)),
    "culprits": RANKS,
    "alternatives": [RANKS],
    "culprit_processes": [
        {
            "rank": Either((int, None)),
            "pid": Either((int, None)),
            "host": str,
            "role": {"rank", "launcher", "dataloader-worker", "child", "absent-node", "foreign-job"},
            "job": str,
        }
    ],
    "victims": RANKS,
    "confidence": {"certain", "likely", "possible"},
    "sure": str,
    "why": str,
    "fix": str,
    "repair": Either(
        (
            {
                "edits": [
                    {
                        "rank": int,
                        "edit": {"delete", "insert", "replace", "move", "revive"},
                        "call": str,
                        "frame": Either((FRAME, None)),
                    }
                ],
                "text": str,
            },
            None,
        )
    ),
    "divergence": Either(({"sides": [SIDE], "branch": Either((BRANCH, None))}, None)),
    "ranks": [
        {
            "rank": int,
            "host": str,
            "pid": Either((int, None)),
            "activity": str,
            "text": str,
            "where": Either((FRAME, None)),
            "waits_for": RANKS,
        }
    ],
    "evidence": [
        {
            "kind": {"journal", "stack", "process", "socket", "port", "store", "log", "locals", "source"},
            "ranks": RANKS,
            "text": str,
        }
    ],
    "unavailable": [{"rank": Either((int, None)), "what": str, "why": str, "remedy": str}],
    "command": [str],
    "stalled_for": Either((float, None)),
    "world_size": Either((int, None)),
}


def faults(value, shape, place="$"):
    """Where ``value`` differs from ``shape``, as a list of texts."""
    if isinstance(shape, Either):
        all_faults = [faults(value, option, place) for option in shape]
        return min(all_faults, key=len)
    if shape is None:
        return [] if value is None else [f"{place}: not null"]
    if isinstance(shape, type):
        right = type(value) is shape or (shape is float and type(value) is int)
        return [] if right else [f"{place}: {value!r} is no {shape.__name__}"]
    if isinstance(shape, set):
        return [] if value in shape else [f"{place}: {value!r} is none of {sorted(shape)}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place}: not a list"]
        return [fault for i, item in enumerate(value) for fault in faults(item, shape[0], f"{place}[{i}]")]
    if not isinstance(value, dict):
        return [f"{place}: not an object"]
    if value.keys() != shape.keys():
        return [f"{place}: keys differ: {sorted(value.keys() ^ shape.keys())}"]
    return [fault for key in shape for fault in faults(value[key], shape[key], f"{place}.{key}")]


def test_the_validator_can_fail():
    good = diagnosis_document(SAMPLE)
    assert faults({**good, "culprits": ["2"]}, SCHEMA)
    assert faults({**good, "extra": 1}, SCHEMA)
    assert faults({**good, "confidence": "sure"}, SCHEMA)
    assert faults({**good, "divergence": {"sides": [{}], "branch": None}}, SCHEMA)


@pytest.mark.parametrize(
    "diagnosis",
    [
        SAMPLE,
        Diagnosis("healthy", "All ranks move."),
        Diagnosis("blind", "Nothing could be seen.", stalled_for=math.inf),
        dataclasses.replace(SAMPLE, cause=None, repair=None, divergence=None, alternatives=((0,), (1, 3))),
    ],
)
def test_the_document_has_the_published_shape(diagnosis):
    assert faults(json.loads(document.render(diagnosis)), SCHEMA) == []


def test_the_document_says_what_the_diagnosis_says():
    found = json.loads(document.render(SAMPLE))
    assert found["cause"] == {
        "code": "HD102",
        "name": "uneven-iterations",
        "title": "A loop ran a different number of times on some ranks",
    }
    assert found["culprits"] == [2]
    assert found["victims"] == [0, 1, 3]
    assert found["divergence"]["sides"][1]["frame"] == {"file": FILE, "line": 88, "function": "evaluate"}
    assert len(found["divergence"]["sides"][1]["stack"]) == 2
    assert found["divergence"]["branch"]["line"] == 57
    assert [rank["waits_for"] for rank in found["ranks"]] == [[2], [2], [], [2]]
    assert found["repair"]["edits"][0]["frame"]["line"] == 88
    assert found["unavailable"][0]["rank"] == 1


def test_the_document_is_harmless_ascii():
    hostile = "\x1b]0;owned\x07\u202e\udcff"
    text = document.render(dataclasses.replace(SAMPLE, verdict=hostile))
    assert text.isascii()
    assert not set(text) & {chr(code) for code in range(32)} - {"\n"}
    assert json.loads(text)["verdict"] == hostile


def test_write_chooses_by_suffix(tmp_path):
    report.write(SAMPLE, tmp_path / "a.json")
    report.write(SAMPLE, tmp_path / "a.TXT")
    assert json.loads((tmp_path / "a.json").read_text())["outcome"] == "hang"
    assert "Rank 2 left the training loop early" in (tmp_path / "a.TXT").read_text("utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.TXT", "a.json"]


def test_a_report_follows_the_umask(tmp_path):
    report.write(SAMPLE, tmp_path / "a.json")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("name", ["a", "a.html", "json", ".json", ""])
def test_an_unknown_suffix_names_the_known_ones(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        report.write(SAMPLE, name)
    assert ".json, .txt" in caught.value.remedy


def test_an_undecodable_text_is_written_all_the_same(tmp_path):
    report.write(dataclasses.replace(SAMPLE, why="caf\udce9"), tmp_path / "a.txt")
    assert "udce9" in (tmp_path / "a.txt").read_text("utf-8")
