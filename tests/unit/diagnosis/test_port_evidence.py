"""Listening ports as evidence: of living groups, and for the verdict only."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Evidence
from hangdoc.model.snapshot import JobSnapshot


def job() -> JobSnapshot:
    """Three ranks that made three groups and destroyed two; then rank 1 made a call too many."""
    return api.load(case("barrier_after_destroyed_groups"))


def ports(job: JobSnapshot) -> Evidence:
    diagnosis = api.diagnose(job)
    assert diagnosis.culprits == (1,)
    (found,) = (item for item in diagnosis.evidence if item.kind == "port")
    return found


def test_a_destroyed_group_needs_no_port() -> None:
    assert ports(job()).text == "3 listening sockets, 3 needed: every rank has set up its process groups"


def without_ports_of(job: JobSnapshot, rank: int) -> JobSnapshot:
    pid = {each.rank: each.process.pid for each in job.ranks if each.process is not None}[rank]
    hosts = (replace(host, listening=tuple(p for p in host.listening if p.pid != pid)) for host in job.hosts)
    return replace(job, hosts=tuple(hosts))


def test_a_missing_port_supports_the_verdict_only_if_it_is_of_a_rank_to_blame() -> None:
    mine, others = (ports(without_ports_of(job(), rank)) for rank in (1, 0))
    assert (mine.ranks, mine.decides) == ((1,), True)
    assert mine.text == "2 listening sockets where 3 are needed: rank 1 never opened its own, or ended"
    assert (others.ranks, others.decides) == ((0,), False)
