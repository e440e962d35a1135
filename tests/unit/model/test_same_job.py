"""Snapshots of several hosts: which of them show one job, which are stale, and whose clock is wrong."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

import pytest
from cases import case
from hosts_of_a_case import on_two_hosts

from hangdoc.diagnosis import diagnose
from hangdoc.model.clocks import with_one_clock
from hangdoc.model.codec import load_snapshot
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.merge import merge
from hangdoc.model.process import Process, ProcessExit
from hangdoc.model.same_job import Part, fitting, with_notes
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot


def part(host: str, *ranks: int, taken: float = 1000.0, pid: int = 7, **variables: str) -> Part:
    environment = {"WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", **variables}
    snapshots = tuple(
        RankSnapshot(
            rank,
            host,
            "environment",
            int(environment["WORLD_SIZE"]),
            environment=tuple(sorted({"RANK": str(rank), **environment}.items())),
            process=Process(pid + rank, 1, "rank"),
        )
        for rank in ranks
    )
    hosts = (HostSnapshot(host, identity=f"boot-{host} 1 1"),)
    world = int(environment["WORLD_SIZE"])
    return Part(host, JobSnapshot(taken, "attach", world_size=world, ranks=snapshots, hosts=hosts))


def test_hosts_of_one_job_fit() -> None:
    parts = [part("a", 0, 1), part("b", 2), part("c", 3)]
    assert fitting(parts) == (parts, [], [])


def without_ranks(host: str, world: int) -> Part:
    """A host that shows no process of a rank: what it expects is all that it says of the job."""
    snapshot = JobSnapshot(1000.0, "watch", world_size=world, ranks=(RankSnapshot(3, host, "expected", world),))
    return Part(host, replace(snapshot, hosts=(HostSnapshot(host, identity=f"boot-{host} 1 1"),)))


def test_a_program_that_is_wrong_about_the_size_is_one_job_on_all_its_hosts() -> None:
    seen = [replace(each, snapshot=replace(each.snapshot, world_size=5)) for each in (part("a", 0, 1), part("c", 2, 3))]
    parts = [seen[0], without_ranks("b", 5), seen[1]]
    for order in (parts, parts[::-1]):
        assert fitting(order) == (order, [], [])


@pytest.mark.parametrize("turned", [False, True])
def test_a_host_without_ranks_that_expects_another_number_is_another_jobs(turned: bool) -> None:
    one, other = parts = [part("a", 0, 1), without_ranks("b", 8)][:: -1 if turned else 1]
    kept, (foreign,), _ = fitting(parts)
    sizes = ("4", "8") if turned else ("8", "4")
    assert (kept, foreign.part) == ([one], other)
    assert foreign.why == f"its WORLD_SIZE is {sizes[0]}, and {sizes[1]} in {one.origin}"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (part("b", 2, 3, WORLD_SIZE="8"), "its WORLD_SIZE is 8, and 4 in a"),
        (part("b", 2, MASTER_PORT="29501"), "its MASTER_PORT is 29501, and 29500 in a"),
        (part("b", 2, MASTER_ADDR="10.0.0.9"), "its MASTER_ADDR is 10.0.0.9, and 10.0.0.1 in a"),
        (part("b", 1, 2), "rank 1 runs there and also, on another host, in a"),
        (part("b", 0, 1), "ranks 0 and 1 run there and also, on another host, in a"),
    ],
)
def test_a_host_of_another_job_does_not(other: Part, why: str) -> None:
    first = part("a", 0, 1)
    kept, foreign, _ = fitting([first, other])
    assert kept == [first]
    assert [(found.part, found.why) for found in foreign] == [(other, why)]


@pytest.mark.parametrize("name", ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE"])
def test_another_run_is_another_job_though_the_ranks_would_fit(name: str) -> None:
    _, foreign, _ = fitting([part("a", 0, 1, **{name: "x"}), part("b", 2, 3, **{name: "y"})])
    assert [found.why for found in foreign] == [f"its {name} is y, and x in a"]


def test_torchruns_run_id_may_be_none_for_all() -> None:
    run = {"TORCHELASTIC_RUN_ID": "none"}
    _, foreign, _ = fitting([part("a", 0, 1, **run), part("b", 2, 3, **run)])
    assert foreign == []


def test_hosts_that_meet_in_different_places_are_one_job_if_no_rank_is_left_over() -> None:
    parts = [part("a", 0, 1), part("b", 2, 3, MASTER_PORT="29501")]
    assert fitting(parts) == (parts, [], [])


def test_a_size_of_millions_takes_no_memory() -> None:
    parts = [part("a", 0, 1, WORLD_SIZE="3000000"), part("b", 2, 3, WORLD_SIZE="3000000", MASTER_PORT="29501")]
    tracemalloc.start()
    try:
        assert [found.why for found in fitting(parts)[1]] == ["its MASTER_PORT is 29501, and 29500 in a"]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_of_two_looks_at_a_host_the_later_one_counts() -> None:
    early, late, other = part("a", 0, 1, taken=900.0), part("a", 0, 1, taken=1000.0), part("b", 2, 3)
    early = Part("first", early.snapshot)
    kept, foreign, notes = fitting([early, other, late])
    assert (kept, foreign) == ([other, late], [])
    assert [note.why for note in notes] == ["first is left out: a shows the same ranks on the same host 100 s later"]


def test_two_watches_of_one_host_are_both_kept() -> None:
    parts = [part("a", 0), part("a", 1, taken=1010.0)]
    assert fitting(parts) == (parts, [], [])


def test_looks_that_are_minutes_apart_are_named() -> None:
    _, _, notes = fitting([part("a", 0, 1), part("b", 2, 3, taken=1000.0 + 720)])
    assert [note.why for note in notes] == ["a was taken 12 min before b, or the hosts' clocks differ by that"]


def test_a_verdict_on_looks_minutes_apart_is_never_certain() -> None:
    job = load_snapshot(case("uneven_batches"))
    a, b = on_two_hosts(job, {0, 2})
    assert diagnose(merge([a, b])).confidence == "certain"
    late = Part("b", replace(b, taken=b.taken + 300))
    kept, _, notes = fitting([Part("a", a), late])
    found = diagnose(with_notes(merge([each.snapshot for each in kept]), notes))
    assert (found.confidence, verdict(job)) == ("likely", verdict(merge([a, b])))
    assert found.sure.endswith("the hosts were looked at minutes apart")


def test_a_thousand_hosts_are_compared_in_linear_time() -> None:
    def seconds(count: int) -> float:
        parts = [part(f"h{n}", *range(8 * n, 8 * n + 8), WORLD_SIZE=str(8 * count)) for n in range(count)]
        began = time.process_time()
        kept, foreign, _ = fitting(parts)
        assert (len(kept), foreign) == (count, [])
        return time.process_time() - began

    few, many = (min(seconds(count) for _ in range(3)) for count in (125, 1000))
    assert many < 30 * few  # quadratic: 64


# --- clocks -------------------------------------------------------------------------------------------------------


def moved(job: JobSnapshot, seconds: float) -> JobSnapshot:
    """``job`` as a host whose clock is ``seconds`` ahead would have shown it."""

    def call_moved(call: Call | PointToPoint) -> int:
        return call.created_ns + round(seconds * 1e9) if call.created_ns else 0

    def journal_moved(journal: Journal | None) -> Journal | None:
        if journal is None:
            return None
        messages = tuple(replace(each, created_ns=call_moved(each)) for each in journal.point_to_points)
        calls = tuple(replace(each, created_ns=call_moved(each)) for each in journal.calls)
        return replace(journal, calls=calls, point_to_points=messages)

    def end_moved(end: ProcessExit | None) -> ProcessExit | None:
        return None if end is None else replace(end, at=end.at + seconds)

    ranks = (replace(rank, journal=journal_moved(rank.journal), exit=end_moved(rank.exit)) for rank in job.ranks)
    return replace(job, taken=job.taken + seconds, ranks=tuple(ranks))


def verdict(job: JobSnapshot) -> tuple[object, ...]:
    found = diagnose(job)
    return found.outcome, found.cause and found.cause.code, found.culprits


@pytest.mark.parametrize("ahead", [-420.0, 420.0])
@pytest.mark.parametrize(("name", "first"), [("amr", {0, 2}), ("early_exit", {0, 1}), ("break_of_outer_loop", {0})])
def test_clocks_that_differ_by_minutes_change_no_verdict(name: str, first: set[int], ahead: float) -> None:
    job = load_snapshot(case(name))
    a, b = on_two_hosts(job, first)
    kept, foreign, notes = fitting([Part("a", a), Part("b", moved(b, ahead))])
    assert (foreign, notes) == ([], [])
    assert verdict(merge([part.snapshot for part in kept])) == verdict(job)


def calls(rank: int, *at: float, op: str = "all_reduce") -> JobSnapshot:
    made = tuple(Call("0", n, n, op, -1, created_ns=round(second * 1e9)) for n, second in enumerate(at, start=1))
    journal = Journal("probe", (ProcessGroup("0", (0, 1)),), made)
    return JobSnapshot(at[-1], "watch", ranks=(RankSnapshot(rank, "h", "probe", 2, journal=journal),))


def test_a_rank_that_is_always_late_has_no_wrong_clock() -> None:
    early, late = calls(0, 0.5, 60.5, 120.5), calls(1, 60.0, 120.0, 180.0)
    assert with_one_clock([early, late]) == [early, late]


def test_a_clock_is_put_right_by_calls_that_all_must_have_begun() -> None:
    first, second = calls(0, 1, 2, 3, 4), calls(1, 301, 302, 303, 304)
    assert [each.taken for each in with_one_clock([first, second])] == [4, 4]
    # What need not wait for the other side proves nothing.
    first, second = calls(0, 1, 2, 3, 4, op="broadcast"), calls(1, 301, 302, 303, 304, op="broadcast")
    assert [each.taken for each in with_one_clock([first, second])] == [4, 304]
