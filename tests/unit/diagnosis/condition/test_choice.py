"""Which of the candidates do the ranks' calls leave, and which comes first?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis import diagnose
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessExit, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/home/me/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
GROUPS = (ProcessGroup("0", (0, 1)),)

TRIED = """
def train():
    try:
        dist.barrier()
    except RuntimeError:
        pass
"""


def waiting(rank: int, line: int) -> RankSnapshot:
    """A rank whose first call, a barrier at that line of train(), has not completed."""
    stack = (Frame(C10D, 9, "barrier"), Frame(FILE, line, "train"))
    look = ProcessState(1.0, "S", threads=(Thread(rank, "MainThread", "S", frames=stack),))
    journal = Journal("probe", GROUPS, (Call("0", 1, 1, "barrier", 0, completed=False, created_ns=5),), stacks=(stack,))
    return RankSnapshot(rank, "n", "probe", process=Process(rank + 1, 9, "rank", looks=(look,)), journal=journal)


def ended(rank: int) -> RankSnapshot:
    """A rank that ended without having made any call."""
    journal = Journal("probe", GROUPS)
    return RankSnapshot(
        rank, "n", "probe", process=Process(rank + 1, 9, "rank"), exit=ProcessExit(0.5, 1), journal=journal
    )


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
def test_a_rank_that_ended_without_any_call_came_from_no_call() -> None:
    """Its previous call would show whether it had been in the try; without one, the try explains nothing."""
    sources = (SourceText(FILE, "train", 1, TRIED.strip("\n")),)
    ranks = (waiting(0, 3), ended(1))
    job = JobSnapshot(taken=1.0, mode="watch", stalled_for=9.0, world_size=2, ranks=ranks, sources=sources)
    diagnosis = diagnose(job)
    assert diagnosis.culprits == (1,)
    assert diagnosis.divergence is not None
    assert diagnosis.divergence.branch is None
