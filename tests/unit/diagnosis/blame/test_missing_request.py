"""Answers that a function holds back without a thread that waits: who has not called it is blamed, no server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.missing_request import missing_request
from hangdoc.diagnosis.context import Case
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

LIBRARY = "/usr/lib/python3.11"


def job() -> JobSnapshot:
    """Rank 0 serves under `if rank > 0:`, ranks 1 and 2 wait for its answer in their loop, rank 3 is past it."""
    return api.load(case("rpc_answer_held_back"))


def with_thread(rank: RankSnapshot, *frames: Frame) -> RankSnapshot:
    assert rank.process is not None
    thread = Thread(999999, "another", "S", "futex_do_wait", frames=frames)
    looks = tuple(replace(look, threads=(*look.threads, thread)) for look in rank.process.looks)
    return replace(rank, process=replace(rank.process, looks=looks))


def without_values(rank: RankSnapshot) -> RankSnapshot:
    """``rank`` without its locals."""
    assert rank.process is not None

    def masked(frame: Frame) -> Frame:
        return replace(frame, locals=())

    looks = tuple(
        replace(look, threads=tuple(replace(t, frames=tuple(map(masked, t.frames))) for t in look.threads))
        for look in rank.process.looks
    )
    return replace(rank, process=replace(rank.process, looks=looks))


def blamed(snapshot: JobSnapshot) -> tuple[int, ...] | None:
    found = missing_request(Case(snapshot))
    return found.culprits if found is not None else None


def test_the_rank_past_the_loop_is_blamed_and_the_server_is_not() -> None:
    found = missing_request(Case(job()))
    assert found is not None
    assert (found.culprits, found.alternatives, found.confidence) == ((3,), (), Confidence.LIKELY)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param((Frame("/job/ps.py", 9, "answer_late"),), id="of-the-users"),
        pytest.param(
            (Frame(f"{LIBRARY}/threading.py", 629, "Event.wait"), Frame(f"{LIBRARY}/threading.py", 1376, "Timer.run")),
            id="timer",
        ),
    ],
)
def test_a_thread_that_may_answer_keeps_it_open(frames: tuple[Frame, ...]) -> None:
    before = job()
    server, *others = before.ranks
    assert blamed(replace(before, ranks=(with_thread(server, *frames), *others))) is None


def test_an_idle_worker_of_a_pool_answers_nothing() -> None:
    before = job()
    server, *others = before.ranks
    idle = Frame(f"{LIBRARY}/concurrent/futures/thread.py", 81, "_worker")
    assert blamed(replace(before, ranks=(with_thread(server, idle), *others))) == (3,)


@pytest.mark.parametrize("unknown", [0, 3])
def test_a_rank_of_which_nobody_knows_whether_it_calls_keeps_it_open(unknown: int) -> None:
    before = job()
    ranks = tuple(without_values(rank) if rank.rank == unknown else rank for rank in before.ranks)
    assert blamed(replace(before, ranks=ranks)) is None
