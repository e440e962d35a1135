"""Two hosts of one job, on which equal process ids mean different processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from cases import case
from hosts_of_a_case import family, on_two_hosts
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.diagnosis import diagnose
from hangdoc.diagnosis.context import Case
from hangdoc.model.codec import load_snapshot, snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.merge import merge
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Process, ProcessExit, ProcessState
from hangdoc.model.same_job import Part, fitting
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, LogTail, Module, RankSnapshot, SourceText, Unavailable
from hangdoc.model.store import RendezvousStore


def verdict(job: JobSnapshot) -> tuple[object, ...]:
    found = diagnose(job)
    return found.outcome, found.cause and found.cause.code, found.culprits


@pytest.mark.parametrize(
    "name",
    [
        *("amr", "all_arrived", "any_source", "c_leaders2", "attach_skip_in_loop", "before_the_loop", "feeder"),
        *("break_of_outer_loop", "spawned_gil_held", "two_ports", "abort_after_a_peer_left", "attach_messages_unseen"),
    ],
)
def test_a_job_on_two_hosts_gets_the_verdict_that_it_gets_on_one(name: str) -> None:
    job = load_snapshot(case(name))
    hosts = on_two_hosts(job, {rank.rank for rank in job.ranks if rank.rank % 2 == 0})
    pids = [{process.pid for rank in host.ranks for process in family(rank.process)} for host in hosts]
    assert pids[0] & pids[1]
    assert verdict(merge(hosts)) == verdict(job)


def test_a_lock_is_held_by_a_process_of_the_same_host() -> None:
    job = load_snapshot(case("flock_over_barrier"))
    (holder, _) = job.ranks
    stranger = replace(job, ranks=(replace(holder, rank=2, host="b"),), hosts=(), launcher=None)
    waits = {wait.waiter: wait.on for wait in Case(merge([job, stranger])).graph.waits}
    assert waits[1] == (0,)
    # So it would be if the host were no part of the key: this is what the test above would miss.
    mistaken = replace(holder, rank=2)
    waits = {wait.waiter: wait.on for wait in Case(replace(job, ranks=(*job.ranks, mistaken))).graph.waits}
    assert waits[1] == (2,)


def test_every_host_keeps_its_launcher_and_the_one_that_is_stopped_is_blamed() -> None:
    """The other host's launcher has the same pid and is older; only it is ``JobSnapshot.launcher``."""
    job = load_snapshot(case("suspended_torchrun_attach"))
    assert job.launcher is not None
    a, b = on_two_hosts(job, {0})
    runs = tuple(replace(look, state="S") for look in job.launcher.looks)
    b = replace(b, launcher=replace(job.launcher, started=1.0, looks=runs))
    for order in ((a, b), (b, a)):
        kept, _, _ = fitting([Part(f"file {number}", each) for number, each in enumerate(order)])
        whole = merge([part.snapshot for part in kept])
        assert whole.launcher == b.launcher
        assert dict(whole.launchers) == {"a": a.launcher, "b": b.launcher}
        assert snapshot_from_bytes(snapshot_to_bytes(whole)) == whole
        found = diagnose(whole)
        assert found.cause is not None
        assert found.cause.code == "HD403"
        assert [(process.pid, process.host) for process in found.culprit_processes] == [(job.launcher.pid, "a")]
    assert a.launchers == (("a", job.launcher),)
    assert merge([a, b]).launchers == (("", b.launcher),)  # as older versions have joined them


def test_ports_are_counted_per_host() -> None:
    def job(host: str, rank: int, ports: int) -> JobSnapshot:
        listening = tuple(ListeningPort(7, "::", 1000 + port) for port in range(ports))
        process = Process(7, 1, "rank")
        ranks = (RankSnapshot(rank, host, "probe", 2, process=process),)
        return JobSnapshot(1.0, "attach", ranks=ranks, hosts=(HostSnapshot(host, listening),))

    both = merge([job("a", 0, 2), job("b", 1, 1)])
    assert [(host.name, len(host.listening)) for host in both.hosts] == [("a", 2), ("b", 1)]
    assert [(rank.rank, rank.host) for rank in both.ranks] == [(0, "a"), (1, "b")]


def test_two_hosts_of_one_name_stay_two() -> None:
    def job(rank: int, identity: str) -> JobSnapshot:
        listening = (ListeningPort(7, "::", 1000),)
        ranks = (RankSnapshot(rank, "trainer", "environment", 2, process=Process(7, 1, "rank")),)
        hosts = (HostSnapshot("trainer", listening, identity=identity),)
        return JobSnapshot(1.0, "attach", ranks=ranks, hosts=hosts)

    both = merge([job(0, "boot 1 1"), job(1, "boot 2 2")])
    assert [len(host.listening) for host in both.hosts] == [1, 1]
    assert {rank.host for rank in both.ranks} == {host.name for host in both.hosts}
    assert all(name.startswith("trainer#") for name in {host.name for host in both.hosts})
    same = merge([job(0, "boot 1 1"), job(1, "boot 1 1")])
    assert [host.name for host in same.hosts] == ["trainer"]


# --- any snapshots ------------------------------------------------------------------------------------------------

TIMES = st.sampled_from([0.0, 1.5, 2.25, 7.0])
NOTES = st.builds(
    Unavailable, st.sampled_from(["stack", "source"]), st.sampled_from(["x", "y"]), rank=st.sampled_from([None, 0, 1])
)
PROCESSES = st.builds(
    Process,
    st.integers(1, 3),
    st.just(1),
    st.just("rank"),
    started=TIMES,
    looks=st.lists(st.builds(ProcessState, TIMES, st.just("S")), max_size=1).map(tuple),
)
RANKS = st.builds(
    RankSnapshot,
    st.integers(0, 3),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["probe", "expected", "elsewhere"]),
    world_size=st.sampled_from([None, 4]),
    restart=st.integers(0, 1),
    process=st.none() | PROCESSES,
    exit=st.none() | st.builds(ProcessExit, TIMES),
)
HOSTS = st.builds(
    HostSnapshot,
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.builds(ListeningPort, st.integers(1, 2), st.just("::"), st.integers(1, 3)), max_size=2).map(tuple),
    st.lists(
        st.builds(Connection, st.integers(1, 2), st.just("l"), st.just(1), st.just("r"), st.just(2), st.just("X")),
        max_size=2,
    ).map(tuple),
    st.integers(0, 2),
    st.sampled_from(["one boot", "another boot"]),
    st.none() | PROCESSES,
)
SOURCES = st.builds(
    SourceText, st.sampled_from(["/a.py", "/b.py"]), st.just("f"), st.integers(1, 2), st.sampled_from(["x", "y"])
)
MODULES = st.builds(
    Module,
    *(st.sampled_from([f"{what}1", f"{what}2"]) for what in ("/file", "sha256:", "")),
    st.sampled_from(["", "m1", "m2"]),
)
SNAPSHOTS = st.builds(
    JobSnapshot,
    TIMES,
    st.sampled_from(["watch", "attach", "dump"]),
    command=st.sampled_from([(), ("a",), ("b",)]),
    run_id=st.sampled_from(["", "r"]),
    stalled_for=TIMES,
    stall_after=TIMES,
    world_size=st.sampled_from([None, 2, 4]),
    ended=st.booleans(),
    exit_status=st.sampled_from([None, 0, 1, -9]),
    launcher=st.none() | PROCESSES,
    ranks=st.lists(RANKS, max_size=3, unique_by=lambda rank: rank.rank).map(tuple),
    hosts=st.lists(HOSTS, max_size=2, unique_by=lambda host: host.name).map(tuple),
    log=st.none() | st.builds(LogTail, st.sampled_from(["/l", "/m"]), st.just(())),
    store=st.none() | st.builds(RendezvousStore, st.just("h"), st.integers(1, 2), joined=st.sampled_from([None, (0,)])),
    sources=st.lists(SOURCES, max_size=2).map(tuple),
    modules=st.lists(MODULES, max_size=2, unique_by=lambda module: module.file).map(tuple),
    library_roots=st.sampled_from([(), ("/x",), ("/y", "/x")]),
    unavailable=st.lists(NOTES, max_size=2).map(tuple),
)


def with_the_hosts_of_its_ranks(job: JobSnapshot) -> JobSnapshot:
    """As every capture is: the host of a rank is among the hosts."""
    missing = sorted({rank.host for rank in job.ranks} - {host.name for host in job.hosts})
    return replace(job, hosts=(*job.hosts, *(HostSnapshot(name, identity="one boot") for name in missing)))


SNAPSHOTS = SNAPSHOTS.map(with_the_hosts_of_its_ranks)


@given(SNAPSHOTS)
def test_one_host_merges_to_itself(snapshot: JobSnapshot) -> None:
    assert merge([snapshot]) is snapshot


@given(SNAPSHOTS, SNAPSHOTS, SNAPSHOTS)
def test_neither_the_order_of_hosts_nor_their_grouping_matters(a: JobSnapshot, b: JobSnapshot, c: JobSnapshot) -> None:
    whole = merge([a, b, c])
    assert all(merge(order) == whole for order in permutations([a, b, c]))
    assert merge([merge([a, b]), c]) == whole
    assert merge([a, merge([b, c])]) == whole


@given(SNAPSHOTS, SNAPSHOTS)
def test_no_rank_and_no_host_is_lost_or_twice(a: JobSnapshot, b: JobSnapshot) -> None:
    whole = merge([a, b])
    both = (*a.ranks, *b.ranks)
    assert [rank.rank for rank in whole.ranks] == sorted({rank.rank for rank in both})
    assert {host.name.partition("#")[0] for host in whole.hosts} == {host.name for host in (*a.hosts, *b.hosts)}
    assert len({host.name for host in whole.hosts}) == len(whole.hosts)
    for rank in whole.ranks:  # who was seen by one host is seen in the whole
        assert (rank.process or rank.exit) or not any(
            other.process or other.exit for other in both if other.rank == rank.rank
        )


def test_a_file_that_differs_between_hosts_is_not_shown() -> None:
    def job(*texts: SourceText) -> JobSnapshot:
        return JobSnapshot(1.0, "attach", sources=texts)

    ours, theirs = SourceText("/a.py", "f", 1, "if a:"), SourceText("/a.py", "f", 1, "if b:")
    other = SourceText("/b.py", "g", 1, "pass")
    whole = merge([job(ours, other), job(theirs)])
    assert whole.sources == (other,)
    assert [(note.what, note.why) for note in whole.unavailable] == [("source", "/a.py is not the same on all hosts")]
    assert merge([whole, job(ours)]).sources == (other,)


def test_a_module_that_differs_between_hosts_is_left_out_and_of_equal_ones_one_is_kept() -> None:
    def job(*modules: Module) -> JobSnapshot:
        return JobSnapshot(1.0, "attach", modules=modules)

    bare, other = Module("/a.py", "sha256:1"), Module("/a.py", "sha256:2", "y = 2")
    ours, theirs = Module("/a.py", "sha256:1", "x = 1", "m1"), Module("/a.py", "sha256:1", "x = 1", "m2")
    assert merge([job(ours), job(bare), job(theirs)]).modules == (theirs,)
    whole = merge([job(ours), job(other)])
    assert whole.modules == ()
    assert [(note.what, note.why) for note in whole.unavailable] == [("modules", "/a.py is not the same on all hosts")]
    assert merge([whole, job(ours)]).modules == ()
