"""How long collectives take and who comes late to them, held against a count by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from device_dumps import folder
from hypothesis import given
from hypothesis import strategies as st

from hangdoc import cli
from hangdoc.model.clocks import moved
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


CALL = st.tuples(st.integers(0, 10**9), st.integers(-5, 10**9), st.sampled_from([0, 0, 7_000]), st.booleans())
"""µs of the issue and from there to the end, ns of the kernel, and whether it has completed."""


@given(st.lists(st.lists(CALL, max_size=8), min_size=1, max_size=4))
def test_what_a_call_took_is_the_kernel_or_the_time_from_its_issue_to_its_end(rows: list[list[Any]]) -> None:
    """Of an operation of which the device timed some calls, these alone count."""
    found = lateness(ended(rows))
    every = [call for row in rows for call in row]
    kernels = [kernel / 1e9 for *_, kernel, _ in every if kernel]
    whole = [took / 1e6 for _, took, kernel, completed in every if completed and took >= 0 and not kernel]
    for operation in found.operations:
        assert operation.took_by == ("kernel" if kernels else "issued" if whole else "")
        if values := kernels or whole:
            assert operation.took[0] == pytest.approx(median(values), abs=1e-8)
            assert operation.took[2] == pytest.approx(max(values), abs=1e-8)
            assert list(operation.took) == sorted(operation.took)
        else:
            assert operation.took == ()


def ended(rows: Sequence[Sequence[tuple[int, int, int, bool]]]) -> JobSnapshot:
    """Rank r issues ``rows[r]``, see ``CALL``."""
    group = ProcessGroup("0", tuple(range(len(rows))), "default_pg", "nccl")
    ranks = []
    for rank, row in enumerate(rows):
        calls = tuple(
            Call(
                *("0", number, number, "all_reduce", -1, ((4, 2),), ("Float",)),
                created_ns=SECOND + at * 1000,
                completed=completed,
                state="completed" if completed else "started",
                completed_ns=SECOND + (at + took) * 1000,
                duration_ns=kernel,
            )
            for number, (at, took, kernel, completed) in enumerate(row, 1)
        )
        ranks.append(RankSnapshot(rank, "a", "dump", journal=Journal("dump", (group,), calls)))
    return JobSnapshot(taken=3000.0, mode="dumps", ranks=tuple(ranks))


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    noticed = statistics.render(lateness(ended([[(0, 2500, 0, True), (10, 3500, 0, True)]])))
    assert "group operation calls data took longest" in " ".join(noticed.split())
    assert "default_pg [0] all_reduce 2 64 B 3 ms 3.5 ms" in " ".join(noticed.split())
    assert "took: time from the issue of a call to its end" in noticed
    assert "apart" not in noticed
    timed = statistics.render(lateness(ended([[(0, 2500, 7000, True)]])))
    assert "took: how long a call ran on the GPU" in timed
    assert "took" not in statistics.render(lateness(job([[1], [2]])))
    rows = [[(k * 10**6, 2500, 0, True) for k in range(12)], [(k * 10**6 + 4000, 2500, 0, True) for k in range(12)]]
    for width in (60, 80, 100):
        assert max(map(len, statistics.render(lateness(ended(rows)), width=width).splitlines())) <= width
    assert "How long the collectives take, and who comes late to them" in page.render(HANG, ended(rows))


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


def test_on_another_clock_every_time_moves() -> None:
    snapshot = ended([[(0, 2500, 7000, True), (9, 0, 0, False)]])
    (rank,) = snapshot.ranks
    assert rank.journal is not None
    phase = Phase("data", SECOND, 2 * SECOND)
    waiting = replace(rank.journal.calls[1], completed_ns=0)
    before = replace(rank.journal, phases=(phase,), calls=(rank.journal.calls[0], waiting))
    (later,) = moved(replace(snapshot, ranks=(replace(rank, journal=before),)), 5.0).ranks
    assert later.journal is not None
    first, second = later.journal.calls
    assert (first.completed_ns, first.duration_ns) == (before.calls[0].completed_ns + 5 * SECOND, 7000)
    assert (second.created_ns, second.completed_ns) == (waiting.created_ns + 5 * SECOND, 0)
    assert later.journal.phases == (Phase("data", 6 * SECOND, 7 * SECOND),)


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


def test_the_command_says_how_long_the_calls_of_a_device_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path, {0: "all_reduce all_reduce broadcast all_reduce*", 1: "all_reduce all_reduce broadcast"})
    assert cli.main(["stats", str(tmp_path), "--json"]) == 0
    told = {each["op"]: each for each in json.loads(capsys.readouterr().out)["operations"]}
    assert told["all_reduce"]["took"] == [0.01, 0.01, 0.01]  # as the helper writes them
    assert (told["all_reduce"]["calls"], told["all_reduce"]["took_by"]) == (3, "issued")
    assert cli.main(["stats", str(tmp_path)]) == 0
    assert re.search(r"all_reduce +3 +48 B +10 ms", capsys.readouterr().out)


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
