"""What is made of a probe's answer about branches; of one that does not fit, nothing."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.read.branches import Recorded, recorded
from hangdoc.model.branches import MOST_BRANCHES, MOST_TAKEN, BranchCounts, Caught, Taken
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.process import Process
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

FILE = "/job/train.py"
STEP = [FILE, "step", 40, [41, 42, 43, 44], [41, 43], True, "", ""]
TEST = [0, 41, 7, 41, 19, "FT", 411, 1, "FFFT", True, 0]
MAIN = 99


def answer(**changes: Any) -> dict[str, Any]:
    threads = [[7, [0, "F", 5]], [MAIN, [0, "F", 10, 0, "F", 20, 0, "T", 30]]]
    caught = [[0, 30, "KeyError", 0, 43], [0, 20, "OSError", -1, -1]]
    return {"codes": [STEP], "tests": [TEST], "threads": threads, "main": MAIN, "caught": caught, "why": "", **changes}


def test_of_code_that_ran_first_when_it_was_recorded_every_line_is_known() -> None:
    found = recorded(answer(), "3.12.1")
    assert found.code == (RanCode(FILE, "step", 40, called=True, ran=(41, 43), idle=(42, 44)),)
    assert found.branches == (BranchCounts(FILE, "step", 41, 7, 41, 19, "FT", (411, 1), "FFFT", whole=True),)
    assert found.branches[0].is_sound


def test_code_that_has_not_been_called_since_it_was_known() -> None:
    row = [FILE, "step", 40, [41, 42, 43], None, True, "", ""]
    assert recorded(answer(codes=[row], tests=[]), "3.12.1").code == (
        RanCode(FILE, "step", 40, called=False, idle=(41, 42, 43)),
    )
    # It may have been before, which its counters from then say: `def f(a): b = a.real; return b`, that was called.
    body = [151, 0, 124, 0, 78, 0, *[0x31, 0], *[7] * 16, 125, 1, 124, 1, 83, 0]
    table = bytes([0x80, 0, 0xD8 | 1, 8, 14, 0x80 | (11 << 3) | 7, 8, 14, 0x80 | (10 << 3) | 3, 8, 14])
    row = [FILE, "f", 40, [41, 42], None, False, b64encode(bytes(body)).decode(), b64encode(table).decode()]
    (code,) = recorded(answer(codes=[row], tests=[]), "3.12.1").code
    assert (code.called, code.ran) == (True, (41,))
    assert recorded(answer(codes=[[*row[:6], "", ""]], tests=[]), "3.12.1").code[0].called is None


def test_the_values_in_order_are_those_of_the_main_thread() -> None:
    assert recorded(answer(), "3.12.1").taken == (Taken(0, "F", 10), Taken(0, "F", 20), Taken(0, "T", 30))


def test_what_was_caught_is_told_with_where_the_program_raised_it() -> None:
    caught = recorded(answer(), "3.12.1").caught
    assert caught == (Caught(0, 20, "OSError"), Caught(0, 30, "KeyError", FILE, 43, "step"))


def test_since_when_the_order_is_whole_is_told_of_each_test() -> None:
    (branch,) = recorded(answer(tests=[[*TEST[:10], 15]]), "3.12.1").branches
    assert branch.since_ns == 15
    many = [[MAIN, [part for at in range(MOST_TAKEN + 5) for part in (0, "F", 100 + at)]]]
    found = recorded(answer(threads=many), "3.12.1")
    assert (len(found.taken), found.branches[0].since_ns) == (MOST_TAKEN, found.taken[0].at_ns)


def test_a_test_that_the_probe_gave_up_on_is_marked() -> None:
    assert not recorded(answer(), "3.12.1").branches[0].cut
    assert recorded(answer(tests=[[*TEST[:9], False, 0]]), "3.12.1").branches[0].cut


def test_of_code_that_ran_before_a_line_without_a_counter_is_not_known() -> None:
    """``def f(a): b = a.real; return b``, before its counters: the line of the ``return`` has none."""
    body = [151, 0, 124, 0, 106, 0, *[0x11, 0], *[0] * 16, 125, 1, 124, 1, 83, 0]
    table = bytes([0x80, 0, 0, 0xD8 | 1, 8, 14, 0x80 | (11 << 3) | 7, 8, 14, 0x80 | (10 << 3) | 3, 8, 14])
    row = [FILE, "f", 40, [41, 42], [42], False, b64encode(bytes(body)).decode(), b64encode(table).decode()]
    (code,) = recorded(answer(codes=[row], tests=[]), "3.12.1").code
    assert code.ran == (42,)
    assert 43 not in code.idle
    (unknown,) = recorded(answer(codes=[[*row[:6], "", ""]], tests=[]), "3.12.1").code
    assert unknown.idle == ()


def test_a_count_that_may_lack_some_is_not_whole() -> None:
    before = [*STEP[:5], False, "", ""]
    assert not recorded(answer(codes=[before]), "3.12.1").branches[0].whole
    assert not recorded(answer(tests=[[*TEST[:9], False, 0]]), "3.12.1").branches[0].whole


def test_without_source_no_test_is_told() -> None:
    found = recorded(answer(), "3.12.1").without_tests()
    assert (found.branches, found.taken, found.caught) == ((), (), ())
    assert found.code


def test_why_nothing_is_recorded_is_told() -> None:
    assert recorded({"codes": [], "tests": [], "threads": [], "why": "taken"}, "3.12.1") == Recorded(why="taken")


@pytest.mark.parametrize(
    "changes",
    [
        {"codes": None},
        {"codes": [[1, 2, 3, 4, 5, 6, 7, 8]]},
        {"codes": [[*STEP[:5], False, "*", "*"]]},
        {"tests": [[5, *TEST[1:]]]},
        {"tests": [[0, -1, *TEST[2:]]]},
        {"tests": [[*TEST[:5], "XY", *TEST[6:]]]},
        {"threads": [[MAIN, [9, "T", 1, 0, "X", 1, 0]]]},
        {"threads": 3, "main": []},
        {
            "caught": [
                [0, 1, 2, 3, 4],
                [9, 1, "KeyError", 0, 1],
                [0, "1", "KeyError", 0, 1],
                [0, 1, "KeyError", 7, 1],
                3,
            ]
        },
        {"why": 7},
    ],
)
def test_what_does_not_fit_is_left_out(changes: dict[str, Any]) -> None:
    found = recorded(answer(**changes), "3.12.1")
    assert all(branch.line == 41 for branch in found.branches)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.sampled_from([*answer()]), inner, max_size=5),
    max_leaves=30,
)


@given(JSON, st.text(max_size=8))
def test_no_answer_raises(value: Any, python: str) -> None:
    assert isinstance(recorded(value, python), Recorded)


def test_a_rank_of_many_branches_takes_twelve_kilobytes_of_a_snapshot() -> None:
    codes = [
        [f"/job/part{n % 9}.py", f"step{n}", 40 * n + 1, [40 * n + 2], [40 * n + 2], True, "", ""] for n in range(60)
    ]
    began = 1_700_000_000_000_000_000
    tests = [
        [n % 60, 40 * (n % 60) + 2, n % 80, 40 * (n % 60) + 2, n % 80 + 9, "FT", 400 + n, 7 * n, "FFT", True, since]
        for n in range(600)
        for since in [began + n * 7_654_321 if n % 3 else 0]
    ]
    events = [part for n in range(900) for part in (n * 7 % 150, "FT"[n % 2], began + n * 1_234_567)]
    found = recorded(answer(codes=codes, tests=tests, threads=[[MAIN, events]]), "3.13.0")
    assert (len(found.branches), len(found.taken)) == (MOST_BRANCHES, MOST_TAKEN)
    process = Process(1, 0, "rank")
    sizes = []
    for each in (process, Process(1, 0, "rank", branches=found.branches, taken=found.taken)):
        job = JobSnapshot(0.0, "watch", ranks=(RankSnapshot(0, "hosta", "probe", process=each),))
        data = snapshot_to_bytes(job)
        assert snapshot_from_bytes(data) == job
        sizes.append(len(data))
    assert sizes[1] - sizes[0] <= 12_288


def test_the_programs_own_tests_are_kept_before_those_that_a_librarys_loop_decided_last() -> None:
    trainer = "/usr/lib/python3/dist-packages/transformers/trainer.py"
    codes = [
        ["/job/train.py", "run", 1, [78], [78], True, "", ""],
        [trainer, "train", 1, [2], [2], True, "", ""],
    ]
    own = [0, 78, 11, 78, 27, "VN", 0, 2, "", True, 0]
    tests = [own, *([1, 2, n, 2, n + 9, "TF", 1, 1, "", True, 0] for n in range(300))]
    events = [part for n in range(300) for part in (1 + n, "T", 1_000 + n)]
    found = recorded(answer(codes=codes, tests=tests, threads=[[MAIN, events]]), "3.13.0")
    kept = [branch.file for branch in found.branches]
    assert (kept.count("/job/train.py"), kept.count(trainer)) == (1, MOST_BRANCHES - 1)
    assert found.taken  # and what these decided goes with them


def test_a_snapshot_from_before_there_were_branches_is_read(tmp_path: Path) -> None:
    job = JobSnapshot(0.0, "watch", ranks=(RankSnapshot(0, "hosta", "probe", process=Process(1, 0, "rank")),))
    value = json.loads(gzip.decompress(snapshot_to_bytes(job)))
    for name in ("branches", "taken"):
        del value["ranks"][0]["process"][name]
    assert snapshot_from_bytes(gzip.compress(json.dumps(value).encode())) == job
