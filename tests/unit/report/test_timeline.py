"""The time line: the rules of the Trace Event Format, and what is on it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cases import case, names
from sample_diagnosis import SAMPLE

from hangdoc import api
from hangdoc.report import write
from hangdoc.report.timeline import render


def events(name: str) -> list[dict[str, Any]]:
    job = api.load(case(name))
    return list(json.loads(render(api.diagnose(job), job))["traceEvents"])


@pytest.mark.parametrize("name", names()[::12])
def test_every_event_is_one_that_viewers_accept(name: str) -> None:
    found = events(name)
    slices = {(e["pid"], e["tid"], e["ts"]) for e in found if e["ph"] == "X"}
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in found:
        assert event["ph"] in ("X", "M", "i", "s", "t", "f")
        assert event["ph"] == "M" or event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
        if event["ph"] in ("s", "t", "f"):
            assert (event["pid"], event["tid"], event["ts"]) in slices
            flows.setdefault(event["id"], []).append(event)
    for steps in flows.values():
        assert [step["ph"] for step in steps] == ["s", *["t"] * (len(steps) - 2), "f"]
        assert [step["ts"] for step in steps] == sorted(step["ts"] for step in steps)


def test_ranks_are_processes_groups_are_tracks_and_the_divergence_is_marked() -> None:
    found = events("uneven_batches")
    named = {(e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in found if e["name"].endswith("_name")}
    assert named["process_name", 2, 0].startswith("rank 2 on host0, pid ")
    assert named["thread_name", 2, 1].startswith("default_pg")
    count = Counter(e["pid"] for e in found if e["ph"] == "X")
    assert count == {0: 13, 1: 13, 2: 13, 3: 13}
    assert {e["pid"] for e in found if e["name"] == "diverged"} == {0, 1, 2, 3}
    assert next(e["name"] for e in found if e.get("s") == "g").startswith("hang: Rank 2 left the loop early")
    waiting = [e for e in found if e["ph"] == "X" and e["args"]["state"] == "waits"]
    assert sorted(e["name"] for e in waiting) == ["all_gather #13", *["all_reduce #13"] * 3]


def test_the_suffix_chooses_it_and_no_snapshot_is_needed(tmp_path: Path) -> None:
    write(SAMPLE, tmp_path / "hang.trace.json")
    document = json.loads((tmp_path / "hang.trace.json").read_text())
    assert [event["ph"] for event in document["traceEvents"]] == ["i"]
    write(SAMPLE, tmp_path / "hang.json")
    assert "traceEvents" not in json.loads((tmp_path / "hang.json").read_text())
