"""Which hosts a cut network is between, from the sockets of all hosts together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case
from hosts_of_a_case import on_two_hosts

from hangdoc import api
from hangdoc.diagnosis import diagnose
from hangdoc.model.merge import merge
from hangdoc.model.network import Connection
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4"}


@pytest.fixture(scope="module")
def job() -> JobSnapshot:
    return api.load(case("partition"))


def verdict(job: JobSnapshot, quiet: str, cut: str, seen: str = "abcd") -> str:
    """The verdict where those pairs of hosts have connections; 'ab' in ``cut``: a gets no answer from b."""
    found = []
    for name in seen:
        ends = [pair for pairs in (quiet, cut) for pair in pairs.split() if name in pair]
        connections = {
            other: Connection(1, ADDRESSES[name], 7, ADDRESSES[other], 8, "ESTABLISHED")
            for pair in ends
            for other in pair.replace(name, "")
        }
        for pair in cut.split():
            if pair[0] == name:
                connections[pair[1]] = replace(connections[pair[1]], send_queue=192, retransmits=5)
        if connections:
            inside = Connection(1, "127.0.0.1", 5, "127.0.0.1", 6, "ESTABLISHED")
            found.append(HostSnapshot(name, connections=(*connections.values(), inside)))
    diagnosis = diagnose(replace(job, hosts=tuple(found)))
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "HD601"
    assert diagnosis.culprits == ()
    return diagnosis.verdict.partition("; all ranks wait in all_reduce")[0]


@pytest.mark.parametrize(
    ("quiet", "cut", "seen", "said"),
    [
        ("", "ab ba", "ab", "a and b cannot reach each other"),
        ("", "ab", "ab", "a gets no answer from b"),
        ("", "ab", "a", "a gets no answer from 10.0.0.2"),
        ("ac ab", "bc cb", "abc", "b and c cannot reach each other; the connections of a with both are quiet"),
        ("ac", "ba ab bc cb", "abc", "b cannot reach a and c; the connections between a and c are quiet"),
        ("ac", "ab cb", "ac", "a and c get no answer from 10.0.0.2; the connections between a and c are quiet"),
        ("", "ba bc", "abc", "b cannot reach a and c"),
        ("", "ab ba ac ca bc cb", "abc", "a and b cannot reach each other, a and c cannot reach each other, b and c"),
        ("", "ab ba cd", "abcd", "a and b cannot reach each other, c gets no answer from d"),
    ],
)
def test_the_hosts_that_do_not_reach_each_other_are_named(
    job: JobSnapshot, quiet: str, cut: str, seen: str, said: str
) -> None:
    assert verdict(job, quiet, cut, seen).startswith(f"The network is cut: {said}")


def test_hosts_that_were_merged_are_told_apart(job: JobSnapshot) -> None:
    parts = on_two_hosts(job, {0})
    assert diagnose(merge(parts)).verdict.startswith("The network is cut: a gets no answer from b;")


def test_an_address_that_two_hosts_have_names_neither(job: JobSnapshot) -> None:
    bridge = Connection(1, "172.17.0.1", 7, "10.0.0.9", 8, "ESTABLISHED", send_queue=1, retransmits=9)
    hosts = tuple(HostSnapshot(name, connections=(bridge,)) for name in "ab")
    assert "172.17.0.1 gets no answer from 10.0.0.9" in diagnose(replace(job, hosts=hosts)).verdict


def test_a_rank_that_is_one_call_ahead_is_not_told_from_the_others(job: JobSnapshot) -> None:
    """The rank that got the last piece of a call waits in the next one; nobody can go on."""
    ahead, behind = job.ranks
    assert behind.journal is not None
    last = max(behind.journal.calls, key=lambda call: call.sequence)
    calls = tuple(call for call in behind.journal.calls if call is not last)
    waiting = replace(max(calls, key=lambda call: call.sequence), completed=False)
    calls = tuple(waiting if call.sequence == waiting.sequence else call for call in calls)
    late = replace(job, ranks=(ahead, replace(behind, journal=replace(behind.journal, calls=calls))))
    found = diagnose(late)
    assert (found.cause and found.cause.code, found.culprits) == ("HD601", ())
    silent = tuple(replace(host, connections=()) for host in job.hosts)
    without = diagnose(replace(late, hosts=silent))
    assert without.cause is None or without.cause.code != "HD601"


def test_clocks_that_differ_by_minutes_change_nothing(job: JobSnapshot) -> None:
    from hangdoc.model.same_job import Part, fitting

    here, there = on_two_hosts(job, {0})
    plain, _, _ = fitting([Part("a", here), Part("b", there)])
    expected = diagnose(merge([part.snapshot for part in plain]))
    for seconds in (-600.0, 600.0):
        kept, foreign, notes = fitting([Part("a", here), Part("b", _by_another_clock(there, seconds))])
        found = diagnose(merge([part.snapshot for part in kept]))
        assert (foreign, notes) == ([], [])
        assert replace(found, evidence=()) == replace(expected, evidence=())


def _by_another_clock(job: JobSnapshot, seconds: float) -> JobSnapshot:
    """The host as its snapshot would be with a clock that is ``seconds`` ahead."""

    def later(at: int) -> int:
        return at + round(seconds * 1e9) if at else 0

    ranks = []
    for rank in job.ranks:
        assert rank.journal is not None
        assert rank.process is not None
        calls = tuple(replace(call, created_ns=later(call.created_ns)) for call in rank.journal.calls)
        looks = tuple(replace(look, at=look.at + seconds) for look in rank.process.looks)
        process = replace(rank.process, looks=looks, started=rank.process.started + seconds)
        ranks.append(replace(rank, journal=replace(rank.journal, calls=calls), process=process))
    return replace(job, taken=job.taken + seconds, ranks=tuple(ranks))
