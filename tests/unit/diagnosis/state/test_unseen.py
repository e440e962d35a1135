"""Ranks that a snapshot does not show: what may be said then, and of whom."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from cases import case

from hangdoc import api
from hangdoc.announce import Announcer
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import RunDirectory

NODES = ("GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK")


@pytest.fixture(scope="module")
def job() -> JobSnapshot:
    """Two nodes of two ranks. Ranks 0 to 2 are in all_reduce #5, rank 3 is in barrier #5."""
    return api.load(case("two_watched_nodes"))


def part(job: JobSnapshot, ranks: Collection[int]) -> JobSnapshot:
    """What a watch of these ranks alone would see."""
    return replace(job, ranks=tuple(rank for rank in job.ranks if rank.rank in ranks))


def started_by_hand(job: JobSnapshot, address: str = "127.0.0.1", **variables: str) -> JobSnapshot:
    """Nothing in the environment says where the ranks run, but ``address``."""

    def launched(rank: RankSnapshot) -> RankSnapshot:
        kept = {n: v for n, v in rank.environment if n not in NODES and not n.startswith("TORCHELASTIC")}
        environment = {**kept, "MASTER_ADDR": address, **variables}
        return replace(rank, local_rank=None, environment=tuple(sorted(environment.items())))

    return replace(job, ranks=tuple(map(launched, job.ranks)))


def with_missing(job: JobSnapshot, *missing: RankSnapshot) -> JobSnapshot:
    return replace(job, ranks=tuple(sorted((*job.ranks, *missing), key=lambda rank: rank.rank)))


def expected(rank: int) -> RankSnapshot:
    return RankSnapshot(rank, "here", "expected", world_size=4)


def code(found: Diagnosis) -> str:
    return found.cause.code if found.cause else ""


def test_a_clash_that_is_seen_outranks_ranks_that_are_not(job: JobSnapshot) -> None:
    found = api.diagnose(part(job, (2, 3)))
    assert (found.outcome, found.culprits, code(found)) == ("hang", (3,), "HD106")
    assert found.confidence != "certain"
    assert found.unseen == (0, 1)
    assert "ranks 0 and 1 run on another host, which this hangdoc does not see" in {n.why for n in found.unavailable}


def test_whose_clash_is_out_of_sight_is_not_to_blame(job: JobSnapshot) -> None:
    found = api.diagnose(part(job, (0, 1)))
    assert (found.culprits, found.alternatives, found.confidence, code(found)) == ((), (), "possible", "")
    assert found.verdict == (
        "Ranks 0 and 1 wait in all_reduce at four.py:13 main(). "
        "Ranks 2 and 3 run on another host, which this hangdoc does not see. "
        "If nothing moves, it counts as a hang in 9 min 55 s (--give-up-after)."
    )


@pytest.mark.parametrize("ranks", [(0,), (0, 1), (2, 3), (3,)])
def test_without_histories_stacks_of_a_part_blame_nobody(job: JobSnapshot, ranks: tuple[int, ...]) -> None:
    seen = part(job, ranks)
    found = api.diagnose(replace(seen, ranks=tuple(replace(rank, journal=None) for rank in seen.ranks)))
    assert (found.culprits, found.confidence) == ((), "possible")
    assert set(found.unseen) == {0, 1, 2, 3} - set(ranks)


@pytest.mark.parametrize("address", ["127.0.0.1", "node-1"])
def test_unseen_is_not_ended(job: JobSnapshot, address: str) -> None:
    """Ranks started by hand, each under a watch of its own: others have completed calls with the unseen one."""
    found = api.diagnose(with_missing(started_by_hand(part(job, (0, 1, 2)), address), expected(3)))
    assert (found.culprits, found.confidence, found.unseen) == ((), "possible", (3,))
    assert "Rank 3 was not seen" in found.verdict
    assert "ended" not in found.verdict


def test_a_rank_that_the_launcher_started_here_and_that_nobody_carries_has_ended(job: JobSnapshot) -> None:
    alone = started_by_hand(part(job, (0, 1, 2)), LOCAL_WORLD_SIZE="4", WORLD_SIZE="4")
    found = api.diagnose(with_missing(alone, expected(3)))
    assert (found.outcome, found.culprits, code(found)) == ("hang", (3,), "HD401")
    assert "launcher starts every rank on this host" in found.sure
    assert found.unseen == ()


def test_whose_listener_is_gone_has_likely_ended(job: JobSnapshot) -> None:
    gone = replace(expected(3), exit=ProcessExit(at=job.taken))
    found = api.diagnose(with_missing(started_by_hand(part(job, (0, 1, 2))), gone))
    assert (found.outcome, found.culprits, code(found), found.confidence) == ("hang", (3,), "HD401", "likely")


def test_an_end_that_was_seen_outranks_ranks_that_were_not(job: JobSnapshot) -> None:
    ranks = [rank for rank in job.ranks if rank.rank in (2, 3)]
    dead = replace(ranks[1], exit=ProcessExit(at=job.taken, status=1))
    assert dead.journal is not None
    dead = replace(dead, journal=replace(dead.journal, calls=dead.journal.calls[:-1]))
    found = api.diagnose(replace(job, ranks=(ranks[0], dead), sources=()))
    assert (found.outcome, found.culprits, code(found)) == ("hang", (3,), "HD401")


def test_the_fewer_of_those_seen_need_not_be_the_fewer_of_all(job: JobSnapshot) -> None:
    """1 against 2 and one that was not seen, without a condition that would tell."""
    found = api.diagnose(replace(part(job, (0, 1, 3)), sources=()))
    assert found.culprits == (3,)
    assert found.alternatives == ((0, 1),)
    assert found.confidence == "possible"


def test_of_a_job_that_ended_the_victims_here_are_not_to_blame(job: JobSnapshot) -> None:
    ended = []
    for rank in part(job, (0, 1)).ranks:
        stack = rank.process.last.main.frames if rank.process and rank.process.last and rank.process.last.main else ()
        end = ProcessExit(at=job.taken, status=1, exception="RuntimeError", stack=stack)
        ended.append(replace(rank, exit=end))
    found = api.diagnose(replace(job, ranks=tuple(ended), ended=True, exit_status=1))
    assert (found.outcome, found.culprits, found.unseen) == ("crashed", (), (2, 3))
    assert "Ranks 2 and 3 run on another host" in found.verdict


def test_abort_needs_a_verdict_that_the_seen_ranks_carry(
    job: JobSnapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = WatchOptions(on_hang="abort")
    spared, ended = (Announcer(("train",), options, RunDirectory(tmp_path / name)) for name in ("a", "b"))
    given_up = replace(part(job, (0, 1)), stalled_for=job.give_up_after + 1)
    assert spared.on_stall(given_up, 1) == "hang"
    capsys.readouterr()
    assert not spared.may_end()
    assert not spared.may_end()
    assert capsys.readouterr().err.count("ranks 2 and 3 could not be seen") == 1
    assert ended.on_stall(part(job, (2, 3)), 1) == "hang"
    assert ended.may_end()
    assert ended.on_stall(job, 1) == "hang"
    assert ended.may_end()


def test_a_world_of_which_little_is_seen_costs_no_more_than_it_is_large(job: JobSnapshot) -> None:
    def seconds(size: int) -> float:
        ranks = []
        for rank in part(job, (2, 3)).ranks:
            assert rank.journal is not None
            groups = (replace(group, members=tuple(range(size))) for group in rank.journal.groups)
            ranks.append(replace(rank, journal=replace(rank.journal, groups=tuple(groups))))
        large = replace(job, ranks=tuple(ranks), world_size=size)
        began = time.process_time()
        found = api.diagnose(large)
        assert (found.culprits, len(found.unseen)) == ((3,), size - 2)
        return time.process_time() - began

    assert min(seconds(16_000) for _ in range(2)) < 16 * max(seconds(2_000), 0.02)  # 64 times if it were quadratic


def test_a_daemon_whose_ranks_await_their_peers_on_loopback_serves_this_host_alone() -> None:
    job = api.load(case("ray_actor_that_never_joined_attach"))
    found = api.diagnose(job)
    assert (code(found), found.culprits, found.unseen) == ("HD301", (3,), ())
    hosts = tuple(
        replace(host, listening=tuple(replace(port, address="192.0.2.2") for port in host.listening))
        for host in job.hosts
    )
    found = api.diagnose(replace(job, hosts=hosts))
    assert (found.culprits, found.unseen) == ((), (3,))
