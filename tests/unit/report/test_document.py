"""The JSON document is exactly what the contract publishes."""

from __future__ import annotations

import dataclasses
import json
import math
import stat

import jsonschema
import pytest
from published_schema import SCHEMA, Optional, faults
from sample_diagnosis import FILE, SAMPLE

from hangdoc import report
from hangdoc.errors import UsageError
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.document import diagnosis_document
from hangdoc.report import document


def test_the_schema_tells_documents_from_what_is_none():
    schema = document.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = diagnosis_document(SAMPLE)
    assert list(validator.iter_errors(good)) == []
    assert validator.is_valid({**good, "added": "by a later version"})
    for name, value in (("culprits", ["2"]), ("confidence", "sure"), ("schema", "hangdoc.diagnosis/2")):
        assert not validator.is_valid({**good, name: value})
    assert not validator.is_valid({name: value for name, value in good.items() if name != "verdict"})
    assert set(schema["properties"]) == set(SCHEMA)
    optional = {name for name, shape in SCHEMA.items() if isinstance(shape, Optional)}
    assert set(SCHEMA) - set(schema["required"]) == optional
    assert optional == {"job", "others"}, "only where one folder holds several jobs"


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


@pytest.mark.parametrize("name", ["a", "a.htm", "json", ".json", ""])
def test_an_unknown_suffix_names_the_known_ones(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        report.write(SAMPLE, name)
    assert ".json, .txt" in caught.value.remedy


def test_an_undecodable_text_is_written_all_the_same(tmp_path):
    report.write(dataclasses.replace(SAMPLE, why="caf\udce9"), tmp_path / "a.txt")
    assert "udce9" in (tmp_path / "a.txt").read_text("utf-8")
