"""The time line: the rules of the Trace Event Format, and what is on it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cases import case, names
from hypothesis import given
from hypothesis import strategies as st
from sample_diagnosis import SAMPLE

from hangdoc import api
from hangdoc.model.branches import BranchCounts, Taken
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
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


def test_the_last_tests_of_a_rank_are_instants_on_a_track() -> None:
    second = 10**9
    branch = BranchCounts("/job/train.py", "step", 41, 7, 41, 19, "FT", (411, 1), "FT", whole=True)
    taken = (Taken(0, "F", 1 * second), Taken(0, "T", 3 * second))
    process = Process(7, 1, "rank", branches=(branch,), taken=taken)
    calls = (Call("0", 1, 1, "all_reduce", -1, created_ns=2 * second),)
    rank = RankSnapshot(0, "a", "probe", process=process, journal=Journal("probe", calls=calls))
    job = JobSnapshot(taken=4.0, mode="watch", ranks=(rank,))
    found = json.loads(render(SAMPLE, job))["traceEvents"]
    tests = [event for event in found if event.get("cat") == "test"]
    assert [(event["name"], event["ts"]) for event in tests] == [
        ("train.py:41 step() false", 0.0),
        ("train.py:41 step() true", 2e6),
    ]
    (track,) = {event["tid"] for event in tests}
    assert {"name": "tests of the main thread"} in [
        e["args"] for e in found if e.get("tid") == track and e["ph"] == "M"
    ]


TIMES = st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans(), st.sampled_from(["0", "tp"]))
"""Of a call: when it is issued, how long it takes, whether it has completed, its group."""


def device_job(rows: list[tuple[int, int, bool, str]]) -> JobSnapshot:
    """Rank 0 issues calls to a device, in s."""
    second = 10**9
    calls = [
        Call(
            *(group, number, number, "all_reduce", -1),
            created_ns=(1 + at) * second,
            completed=completed,
            state="completed" if completed else "scheduled",
            completed_ns=(1 + at + took) * second if completed else 0,
        )
        for number, (at, took, completed, group) in enumerate(rows, 1)
    ]
    rank = RankSnapshot(0, "a", "dump", journal=Journal("dump", calls=tuple(calls)))
    return JobSnapshot(taken=100.0, mode="dumps", ranks=(rank,))


def drawn(job: JobSnapshot) -> list[dict[str, Any]]:
    found = json.loads(render(Diagnosis("hang", "It hangs."), job))["traceEvents"]
    return [event for event in found if event["ph"] == "X"]


@given(st.lists(TIMES, max_size=14))
def test_slices_end_where_the_calls_did_and_those_of_a_track_never_overlap_in_part(
    rows: list[tuple[int, int, bool, str]],
) -> None:
    slices = drawn(device_job(rows))
    begun = min((at for at, *_ in rows), default=0)
    wanted = [(at - begun, took if completed else 99 - at) for at, took, completed, _ in rows]
    assert sorted((e["ts"] / 1e6, round(e["dur"] / 1e6, 3)) for e in slices) == sorted(wanted)
    for one, other in itertools.combinations(slices, 2):
        if one["tid"] == other["tid"]:
            (begin, end), (later, last) = sorted((e["ts"], e["ts"] + e["dur"]) for e in (one, other))
            assert end <= later + 1 or last <= end or begin == later, (
                "viewers show slices side by side or inside others"
            )


def test_more_calls_at_once_than_tracks_are_cut_short_and_said_so() -> None:
    slices = drawn(device_job([(at, 30, True, "0") for at in range(20)]))
    assert len(slices) == 20
    assert len({e["tid"] for e in slices}) == 16
    assert all(e["dur"] <= 30e6 for e in slices)
    assert any(e["args"].get("end") == "cut short" for e in slices)


@pytest.mark.parametrize(("written", "waited"), [(50, 49), (10_000, 60), (0, 20)])
def test_a_call_in_a_dump_waits_until_it_was_written_and_no_longer_than_pytorch_lets_it(
    written: int, waited: int
) -> None:
    second = 10**9
    call = Call("0", 1, 1, "all_reduce", -1, created_ns=second, completed=False, state="started", timeout_ms=60_000)
    journal = Journal("dump", calls=(call,), written_ns=written * second, latest_ns=21 * second)
    job = JobSnapshot(taken=1.5, mode="dump", ranks=(RankSnapshot(0, "a", "dump", journal=journal),))
    assert [event["dur"] for event in drawn(job)] == [waited * 10**6]


def test_where_no_end_is_recorded_the_slice_says_so() -> None:
    (call, *_) = [e for e in events("uneven_batches") if e["ph"] == "X"]
    assert call["args"]["end"] == "not recorded"


def test_the_suffix_chooses_it_and_no_snapshot_is_needed(tmp_path: Path) -> None:
    write(SAMPLE, tmp_path / "hang.trace.json")
    document = json.loads((tmp_path / "hang.trace.json").read_text())
    assert [event["ph"] for event in document["traceEvents"]] == ["i"]
    write(SAMPLE, tmp_path / "hang.json")
    assert "traceEvents" not in json.loads((tmp_path / "hang.json").read_text())
