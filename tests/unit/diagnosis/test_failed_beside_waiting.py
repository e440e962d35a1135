"""One rank failed, and the others wait for nobody seen: when is that a hang at once?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc import api
from hangdoc.model.process import Frame, Process, ProcessExit, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

FILE = "/job/train.py"
QUEUE = (Frame("/usr/lib/python3.11/threading.py", 320, "wait"), Frame("/usr/lib/python3.11/queue.py", 171, "get"))


def waiting(rank: int, wakes_in: float | None = None) -> RankSnapshot:
    stack = (*QUEUE, Frame(FILE, 3, "<module>"))
    main = Thread(1000 + rank, "python", "S", "futex_wait_queue", wakes_in=wakes_in, owns_gil=False, frames=stack)
    looks = (ProcessState(100.0, "S", threads=(main,)), ProcessState(101.0, "S", threads=(main,)))
    return RankSnapshot(rank, "node", "procfs", process=Process(1000 + rank, 1, "rank", looks=looks))


def job(*ranks: RankSnapshot) -> JobSnapshot:
    """Rank 2 ended with a ValueError; ``ranks``: the others."""
    end = ProcessExit(90.0, status=1, exception="ValueError", stack=(Frame(FILE, 4, "<module>"),))
    failed = RankSnapshot(2, "node", "procfs", process=Process(1002, 1, "rank"), exit=end)
    every = tuple(sorted((*ranks, failed), key=lambda each: each.rank))
    return JobSnapshot(taken=101.0, mode="watch", ranks=every, world_size=len(every), stalled_for=100.0)


def with_child(rank: RankSnapshot) -> RankSnapshot:
    looks = tuple(
        ProcessState(100.0 + look, "R", cpu=look, threads=(Thread(3000, "python", "R", cpu=look),)) for look in (0, 1)
    )
    child = Process(3000, 1000, "child", looks=looks)
    return replace(rank, process=rank.process and replace(rank.process, children=(child,)))


@pytest.mark.parametrize(
    ("ranks", "outcome"),
    [
        pytest.param((waiting(0), waiting(1)), "hang", id="for ever"),
        pytest.param((waiting(0), waiting(1, 20.0)), "slow", id="with a timeout"),
        pytest.param((with_child(waiting(0)), waiting(1)), "slow", id="beside a child that works"),
        pytest.param((waiting(0), waiting(1), RankSnapshot(3, "other", "procfs")), "slow", id="beside an unseen rank"),
    ],
)
def test_the_failed_rank_is_named_and_a_hang_only_where_nobody_acts(
    ranks: tuple[RankSnapshot, ...], outcome: str
) -> None:
    found = api.diagnose(job(*ranks))
    assert (found.culprits, found.outcome) == ((2,), outcome)
