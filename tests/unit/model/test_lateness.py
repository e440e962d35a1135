"""Who comes late to the collectives, held against a count by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc import cli
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal, Phase, ProcessGroup
from hangdoc.model.lateness import lateness
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.report import page, statistics, timeline

SECOND = 1_000_000_000
HANG = Diagnosis("hang", "Rank 1 hangs.")
TIMES = st.integers(1, 10**6)


def job(times: list[list[int]], *, op: str = "all_reduce", **more: object) -> JobSnapshot:
    """Rank r issues call k of one group at ``times[r][k]`` µs."""
    group = ProcessGroup("0", tuple(range(len(times))), "default_pg", "gloo")
    ranks = []
    for rank, row in enumerate(times):
        calls = tuple(
            Call("0", number, number, op, -1, ((4, 2),), ("Float",), created_ns=SECOND + at * 1000)
            for number, at in enumerate(row, 1)
        )
        ranks.append(RankSnapshot(rank, "a", "probe", journal=Journal("probe", (group,), calls, **more)))  # type: ignore[arg-type]
    return JobSnapshot(taken=2.0, mode="watch", ranks=tuple(ranks))


@given(st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(TIMES, max_size=12), min_size=n, max_size=n)))
def test_the_figures_are_those_of_a_count_by_hand(times: list[list[int]]) -> None:
    found = lateness(job(times))
    longest = max(map(len, times))
    if not longest:
        assert found.operations == ()
        return
    (operation,) = found.operations
    whole = [[row[k] for row in times] for k in range(min(map(len, times)))]
    if sum(map(bool, times)) < len(times):
        whole = []
    assert operation.calls == longest
    assert operation.bytes == 32 * longest
    assert operation.compared == len(whole)
    gaps = [(max(column) - min(column)) / 1e6 for column in whole]
    if gaps:
        assert abs(operation.apart[0] - median(gaps)) < 1e-9
        assert abs(operation.apart[2] - max(gaps)) < 1e-9
        assert operation.apart[0] <= operation.apart[1] <= operation.apart[2]
    last = Counter(max((at, rank) for rank, at in enumerate(column))[1] for column in whole)
    assert {late.rank: late.times for late in operation.last} == dict(last)
    assert sum(late.times for late in operation.last) == len(whole)


def test_a_call_that_a_member_has_not_issued_has_no_last_rank() -> None:
    (operation,) = lateness(job([[10, 20], [15]])).operations
    assert (operation.calls, operation.compared) == (2, 1)
    assert [(late.rank, late.times) for late in operation.last] == [(1, 1)]


def test_ranks_with_the_times_of_another_are_left_out() -> None:
    found = lateness(job([[10], [15]], issued_at=(("call", 0, 5),)))
    assert (found.operations, found.left_out) == ((), (0, 1))


def test_the_report_names_who_is_always_late() -> None:
    times = [[k * 10_000 for k in range(1, 21)], [k * 10_000 + 4_000 for k in range(1, 21)]]
    text = statistics.render(lateness(job(times)), width=100)
    assert "ranks 0 and 1: 20 collectives" in text
    assert "default_pg [0,1] all_reduce 20 640 B 4 ms 4 ms 4 ms rank 1, 100 %" in " ".join(text.split())
    named = "Rank 1 comes last to 20 of 20 all_reduce calls of default_pg: the others wait 4 ms for it (median)."
    assert named in " ".join(text.split())
    for width in (60, 80):
        assert max(map(len, statistics.render(lateness(job(times)), width=width).splitlines())) <= width


def test_what_a_job_calls_its_groups_is_shown_and_not_obeyed() -> None:
    text = statistics.render(lateness(job([[1], [2]], op="all\x1b[2J\nreduce")))
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def test_nothing_recorded_is_said() -> None:
    assert "No collectives are recorded" in statistics.render(lateness(JobSnapshot(taken=0.0, mode="watch", ranks=())))


def test_the_command_reads_what_was_saved(capsys: pytest.CaptureFixture[str]) -> None:
    saved = Path(__file__).parents[2] / "data" / "HD101" / "amr.hangdoc"
    assert cli.main(["stats", str(saved)]) == 0
    assert re.search(r"all_reduce +\d+ .* rank \d, \d+ %", capsys.readouterr().out)
    assert cli.main(["stats", str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operations"][0]["compared"] > 0
    assert cli.main(["stats", "/nowhere/job.hangdoc"]) == 3


def test_phases_name_the_slowest_rank() -> None:
    ms = 1_000_000
    ranks = []
    for rank in (0, 1):
        passes = [Phase("backward", k * 100 * ms, (k * 100 + 10 + 5 * rank) * ms) for k in range(1, 6)]
        phases = (*passes, Phase("data", 900 * ms), Phase("\x1b[2J", ms, 2 * ms))
        ranks.append(RankSnapshot(rank, "a", "probe", journal=Journal("probe", phases=phases)))
    snapshot = JobSnapshot(taken=2.0, mode="watch", ranks=tuple(ranks))
    (phase,) = lateness(snapshot).phases
    assert (phase.name, phase.count, phase.slowest) == ("backward", 10, (1, 0.015))
    text = " ".join(statistics.render(lateness(snapshot)).split())
    assert "backward 10 12.5 ms 15 ms 15 ms rank 1, 15 ms" in text
    slices = [event for event in json.loads(timeline.render(HANG, snapshot))["traceEvents"] if event.get("cat")]
    assert {(each["name"], each["pid"]) for each in slices} == {
        (name, rank) for name in ("backward", "data", "\\x1b[2J") for rank in (0, 1)
    }
    assert all(each["dur"] > 0 and each["ts"] >= 0 for each in slices)


def test_the_page_has_the_table() -> None:
    times = [[k * 10_000 for k in range(1, 21)], [k * 10_000 + 4_000 for k in range(1, 21)]]
    text = page.render(HANG, job(times))
    assert "Who comes late to the collectives" in text
    assert "<td>rank 1, 100 %</td>" in text
    assert "Who comes late" not in page.render(HANG, job([[], []]))
