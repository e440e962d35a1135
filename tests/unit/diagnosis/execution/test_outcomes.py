"""The table of tests and ranks, from the probe's recorder and the interpreter's counters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangdoc.diagnosis.execution.outcomes import COUNTERS, RECORDER, Outcomes, who_counts
from hangdoc.model import ran
from hangdoc.model.branches import BranchCounts
from hangdoc.model.process import Process

FILE = "/job/train.py"
PLACE = (FILE, 41, 7, 41, 19)
TESTED = ran.Tested(*PLACE[1:], "TFF")
COUNTED = ran.RanCode(FILE, "step", 40, called=True, tests=(TESTED,))


def recorded(counts: tuple[int, int], last: str, *, whole: bool = True) -> BranchCounts:
    return BranchCounts(FILE, "step", *PLACE[1:], "FT", counts, last, whole)


def table(**processes: Process) -> Outcomes:
    return Outcomes({int(name[1:]): process for name, process in processes.items()})


def test_the_recorder_tells_when_and_the_counters_only_the_last() -> None:
    found = table(
        r0=Process(1, 0, "rank", code=(COUNTED,)), r1=Process(2, 0, "rank", branches=(recorded((411, 1), "FFT"),))
    )
    counters, recorder = found.of(0, PLACE), found.of(1, PLACE)
    assert counters is not None
    assert recorder is not None
    assert (counters.source, counters.last, counters.whole) == (COUNTERS, "TFF", False)
    assert (recorder.source, recorder.counts, recorder.times) == (RECORDER, {"F": 411, "T": 1}, 412)


def test_only_a_whole_count_says_never() -> None:
    for whole in (True, False):
        process = Process(1, 0, "rank", branches=(recorded((9, 0), "FFF", whole=whole),))
        found = table(r0=process).of(0, PLACE)
        assert found is not None
        assert found.never("T") is whole
        assert not found.never("F")
    counters = table(r0=Process(1, 0, "rank", code=(COUNTED,))).of(0, PLACE)
    assert counters is not None
    assert not counters.never("N")


def test_the_recorder_s_word_counts_where_both_have_one() -> None:
    process = Process(1, 0, "rank", code=(COUNTED,), branches=(recorded((3, 1), "FFFT"),))
    found = table(r0=process).of(0, PLACE)
    assert found is not None
    assert found.source == RECORDER


def test_two_jumps_of_one_expression_are_counted_together_and_in_no_order() -> None:
    process = Process(1, 0, "rank", branches=(recorded((3, 1), "FT"), recorded((2, 5), "T")))
    found = table(r0=process).of(0, PLACE)
    assert found is not None
    assert (found.counts, found.last) == ({"F": 5, "T": 6}, "")


def test_tests_on_a_line_are_those_that_every_rank_knows() -> None:
    process = Process(1, 0, "rank", branches=(recorded((3, 1), "FT"),))
    found = table(r0=process, r1=process, r2=Process(3, 0, "rank"))
    assert found.on_line((0, 1), FILE, 41) == [PLACE]
    assert found.on_line((0, 1), FILE, 42) == []
    assert found.on_line((0, 1, 2), FILE, 41) == []
    assert found.on_line((), FILE, 41) == []


@pytest.mark.parametrize("unsound", [{"values": "XYZ"}, {"last": "TX"}, {"counts": (-1, 2)}])
def test_a_row_that_no_probe_writes_is_left_out(unsound: dict[str, Any]) -> None:
    process = Process(1, 0, "rank", branches=(replace(recorded((3, 1), "FT"), **unsound),))
    assert table(r0=process).of(0, PLACE) is None


def test_whose_word_it_is() -> None:
    process = Process(1, 0, "rank", branches=(recorded((3, 1), "FT"),))
    assert who_counts([process], FILE) == "as the probe recorded"
    assert who_counts([process], "/job/other.py") == "by the interpreter's counters"
