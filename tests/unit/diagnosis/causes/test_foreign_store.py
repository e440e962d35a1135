"""Whose store the ranks are connected to: another job's process is the culprit only where rank 0 serves none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.store import ForeignServer


@pytest.fixture
def waiting() -> JobSnapshot:
    """Rank 0 could not listen at its port and ended; rank 1 waits at the store of the process that has the port."""
    return api.load(case("port_of_another_job"))


def with_rank(job: JobSnapshot, rank: int, change: Callable[[RankSnapshot], RankSnapshot]) -> JobSnapshot:
    ranks = tuple(change(each) if each.rank == rank else each for each in job.ranks)
    return dataclasses.replace(job, ranks=ranks)


def served_by(job: JobSnapshot, server: ForeignServer | None) -> JobSnapshot:
    assert job.store is not None
    return dataclasses.replace(job, store=dataclasses.replace(job.store, foreign=server))


def blames_another(found: Diagnosis) -> bool:
    return [process.role for process in found.culprit_processes] == ["foreign-job"]


def never_started(job: JobSnapshot) -> JobSnapshot:
    return with_rank(job, 0, lambda rank: RankSnapshot(0, rank.host, "expected", world_size=2))


def test_a_server_that_may_not_be_read_is_named_so_where_rank_0_was_refused(waiting: JobSnapshot) -> None:
    found = api.diagnose(served_by(waiting, ForeignServer()))
    assert blames_another(found)
    assert "belongs to a process that hangdoc may not read" in found.verdict
    assert found.culprit_processes[0].pid is None
    # One that nobody can read may be rank 0 itself, in a container.
    assert not blames_another(api.diagnose(never_started(served_by(waiting, ForeignServer()))))


def test_without_the_end_of_rank_0_it_is_likely_only(waiting: JobSnapshot) -> None:
    found = api.diagnose(never_started(waiting))
    assert blames_another(found)
    assert (found.confidence, found.outcome) == ("likely", "hang")


def test_a_rank_0_that_ended_otherwise_may_have_left_a_store_that_is_meant_for_it() -> None:
    joined = api.load(case("joined_another_job"))
    ended = with_rank(joined, 0, lambda rank: dataclasses.replace(rank, exit=ProcessExit(1.0, status=1)))
    assert joined.store is not None
    assert joined.store.foreign is not None
    assert blames_another(api.diagnose(ended))  # the server is a rank of another job
    unlabelled = dataclasses.replace(joined.store.foreign, rank=None, world_size=None)
    assert not blames_another(api.diagnose(served_by(ended, unlabelled)))


def alive(job: JobSnapshot) -> JobSnapshot:
    living = next(rank for rank in job.ranks if rank.rank == 1)
    return with_rank(job, 0, lambda _: dataclasses.replace(living, rank=0))


def by_agent(job: JobSnapshot) -> JobSnapshot:
    def change(rank: RankSnapshot) -> RankSnapshot:
        return dataclasses.replace(rank, environment=(*rank.environment, ("TORCHELASTIC_USE_AGENT_STORE", "True")))

    return with_rank(job, 1, change)


def not_connected(job: JobSnapshot) -> JobSnapshot:
    return dataclasses.replace(job, hosts=tuple(dataclasses.replace(host, connections=()) for host in job.hosts))


@pytest.mark.parametrize("change", [alive, by_agent, not_connected, lambda job: served_by(job, None)])
def test_who_is_left_alone(waiting: JobSnapshot, change: Callable[[JobSnapshot], JobSnapshot]) -> None:
    assert blames_another(api.diagnose(waiting))
    assert not blames_another(api.diagnose(change(waiting)))


IN_USE = (
    "The server socket has failed to listen on any local network address. port: {port}, useIpv6: false, code: -98, "
    "name: EADDRINUSE, message: address already in use"
)


def refused_with(job: JobSnapshot, text: str) -> JobSnapshot:
    def change(rank: RankSnapshot) -> RankSnapshot:
        assert rank.exit is not None
        return dataclasses.replace(rank, exit=dataclasses.replace(rank.exit, message=text))

    return dataclasses.replace(with_rank(job, 0, change), store=None)


def test_without_a_look_at_the_port_the_exception_says_that_it_is_in_use(waiting: JobSnapshot) -> None:
    assert waiting.store is not None
    found = api.diagnose(refused_with(waiting, IN_USE.format(port=waiting.store.port)))
    assert found.cause is not None
    assert (found.cause.code, found.confidence) == ("HD302", "likely")
    assert blames_another(found)
    assert found.culprit_processes[0].pid is None
    assert f"could not listen at port {waiting.store.port}" in found.verdict
    # Another port, or another failure to connect, says nothing of the job's own.
    for text in (IN_USE.format(port=1), "The client socket has timed out after 60000ms"):
        other = api.diagnose(refused_with(waiting, text))
        assert other.cause is not None
        assert other.cause.code == "HD401"
