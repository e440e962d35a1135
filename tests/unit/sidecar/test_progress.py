"""The follower against a job made of paper: no processes, no sockets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.probe_client import ProbeCounters
from hangdoc.capture.read.procfs import Pulse
from hangdoc.sidecar import progress
from hangdoc.sidecar.progress import Follower

ASLEEP = Pulse("S", 1.0, 10)


def counters(done: int, *, initialized: bool = True, p2p: int = 0) -> ProbeCounters:
    return ProbeCounters(
        pid=0,
        rank=0,
        world_size=2,
        local_rank=0,
        restart=0,
        groups={"0": (done, done)} if initialized else {},
        group_count=int(initialized),
        initialized=initialized,
        point_to_points=p2p,
        store_calls=0,
        in_store=False,
    )


@dataclass
class Paper:
    """Ranks by pid: pulse, and the probe's answer (None: silent)."""

    pulses: dict[int, Pulse]
    answers: dict[int, ProbeCounters | None] = field(default_factory=dict)
    searches: int = 0
    asked: list[int] = field(default_factory=list)
    ports: int = 0
    family: tuple[int, ...] = ()


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    job = Paper({11: ASLEEP, 12: ASLEEP})

    class Client:
        def __init__(self, path: Path, pid: int) -> None:
            assert path.stem == str(pid)
            self.pid = pid

        def counters(self, deadline_s: float) -> ProbeCounters | None:
            job.asked.append(self.pid)
            return job.answers[self.pid]

        def close(self) -> None:
            pass

    def find_ranks(root: int, folder: Path, **_: object) -> list[RankTarget]:
        job.searches += 1
        return [
            RankTarget(
                number,
                pid,
                "probe",
                world_size=len(job.pulses),
                socket=Path(f"{pid}.sock") if pid in job.answers else None,
            )
            for number, pid in enumerate(job.pulses)
        ]

    monkeypatch.setattr(progress, "find_ranks", find_ranks)
    monkeypatch.setattr(progress, "listening_ports", lambda pids: [None] * job.ports)
    monkeypatch.setattr(progress, "ProbeClient", Client)
    monkeypatch.setattr(progress.procfs, "pulse", lambda pid: job.pulses.get(pid))
    monkeypatch.setattr(progress.procfs, "children", lambda pid: list(job.family) if pid == 1 else [])
    return job


def started(paper: Paper) -> Follower:
    """A follower that has met all ranks."""
    follower = Follower(1, Path("/nonexistent"))
    assert follower.beat(1.0).changed
    follower.beat(2.0)
    return follower


def searches_cost(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every search take this much CPU time."""
    spent = itertools.count(0.0, seconds)
    monkeypatch.setattr(progress.time, "thread_time", lambda: next(spent))


def test_equal_counters_are_no_progress_however_busy_the_ranks(paper: Paper) -> None:
    paper.answers = {11: counters(5), 12: counters(5)}
    follower = started(paper)
    paper.pulses = {pid: Pulse("R", 9.0, 9999) for pid in paper.pulses}
    assert not follower.beat(3.0).moved


def test_a_counter_of_any_rank_is_progress(paper: Paper) -> None:
    paper.answers = {11: counters(5), 12: counters(5)}
    follower = started(paper)
    paper.answers[12] = counters(6)
    assert follower.beat(3.0).moved
    assert not follower.beat(4.0).moved
    paper.answers[11] = counters(5, p2p=1)
    assert follower.beat(5.0).moved


def test_a_polled_store_is_no_progress(paper: Paper) -> None:
    quiet = counters(0, initialized=False)
    paper.answers = {11: quiet, 12: quiet}
    follower = started(paper)
    paper.answers = {pid: replace(quiet, store_calls=77, in_store=True) for pid in paper.answers}
    assert not follower.beat(3.0).moved


@pytest.mark.parametrize(("busy", "moved"), [(0, False), (1, False), (2, True)])
def test_without_a_probe_most_main_threads_must_lie_still(busy: int, moved: bool, paper: Paper) -> None:
    follower = started(paper)
    for pid in [11, 12][:busy]:
        paper.pulses[pid] = Pulse("S", 1.0, 110)
    assert follower.beat(3.0).moved == moved


def test_a_polling_rank_lies_still_and_a_computing_one_does_not(paper: Paper) -> None:
    follower = started(paper)
    paper.pulses = {pid: Pulse("S", 1.01, 30) for pid in paper.pulses}
    assert not follower.beat(3.0).moved
    paper.pulses = {pid: Pulse("R", 1.9, 31) for pid in paper.pulses}
    assert follower.beat(4.0).moved


def test_a_rank_that_ends_is_a_change_and_forgotten(paper: Paper) -> None:
    follower = started(paper)
    paper.pulses[12] = Pulse("Z", 1.0, 10)
    beat = follower.beat(3.0)
    assert (beat.ranks, beat.changed) == (1, True)
    assert not follower.beat(4.0).changed


def test_a_silent_probe_is_left_alone_ever_longer(paper: Paper) -> None:
    paper.answers = {11: None, 12: counters(1)}
    follower = Follower(1, Path("/nonexistent"))
    for second in range(1, 31):
        follower.beat(float(second))
    assert 3 <= paper.asked.count(11) <= 8
    assert paper.asked.count(12) == 30


def test_searches_follow_the_family_once_it_settles_and_every_ten_seconds(paper: Paper) -> None:
    follower = started(paper)
    for second in range(3, 9):
        follower.beat(float(second))
    before = paper.searches
    paper.family = (11, 12, 13)
    follower.beat(9.0)
    assert paper.searches == before + 1
    follower.beat(9.5)
    assert paper.searches == before + 1
    follower.beat(10.0)
    assert paper.searches == before + 2, "once more: the new one may still have been a copy of its parent"
    for second in range(11, 20):
        follower.beat(float(second))
    assert paper.searches == before + 2
    follower.beat(20.0)
    assert paper.searches == before + 3


def test_a_job_that_starts_is_searched_each_time_it_changes(paper: Paper) -> None:
    """A rank may live for less than two seconds: what it was is known only if it is found while it lives."""
    follower = Follower(1, Path("/nonexistent"))
    for second in range(1, 7):
        paper.family = tuple(range(second))
        before = paper.searches
        follower.beat(float(second))
        assert paper.searches == before + 1


def test_a_job_that_forks_all_the_time_is_not_searched_all_the_time(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches_cost(0.02, monkeypatch)
    follower = started(paper)
    before = paper.searches
    for second in range(3, 63):
        paper.family = (second + 100,)
        follower.beat(float(second))
    assert 30 <= paper.searches - before <= 36, "one that takes 0.02 s is worth one every 2 s"


def test_a_change_that_was_not_searched_for_is_searched_for_later(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches_cost(0.13, monkeypatch)
    follower = Follower(1, Path("/nonexistent"))
    follower.beat(1.0)
    paper.family = (11,)
    follower.beat(2.0)
    assert paper.searches == 1, "0.03 s too much was spent"
    follower.beat(5.0)
    assert paper.searches == 2


def test_new_ports_are_a_change(paper: Paper) -> None:
    follower = started(paper)
    paper.ports = 2
    assert follower.search(3.0)
    assert not follower.search(4.0)


def test_a_dear_search_is_made_rarely(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    searches_cost(0.3, monkeypatch)
    follower = Follower(1, Path("/nonexistent"))
    for second in range(1, 92):
        paper.family = (second,)
        follower.beat(float(second))
    assert paper.searches in (3, 4), "one that takes 0.3 s is worth one every 30 s"


def test_a_lone_process_with_a_rank_is_a_job_once_it_has_a_group(paper: Paper) -> None:
    del paper.pulses[12]
    paper.answers = {11: counters(0, initialized=False)}
    follower = started(paper)
    assert follower.beat(3.0).ranks == 0
    paper.answers = {11: counters(1)}
    assert follower.beat(4.0).ranks == 1


def test_groups_without_counters_leave_it_to_the_main_threads(paper: Paper) -> None:
    without = replace(counters(0), groups={})
    paper.answers = {11: without, 12: without}
    follower = started(paper)
    paper.pulses = {pid: Pulse("R", 1.9, 31) for pid in paper.pulses}
    assert follower.beat(3.0).moved
    assert not follower.beat(4.0).moved
