"""Stages of a pipeline that cut their batches differently, as stacks alone show them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def counting(job: JobSnapshot, counts: dict[int, int]) -> JobSnapshot:
    """The job of four stages with these numbers of micro-batches."""

    def process(found: Process, count: int) -> Process:
        looks = tuple(
            replace(
                look,
                threads=tuple(
                    replace(
                        thread,
                        frames=tuple(
                            replace(
                                frame,
                                locals=tuple(
                                    replace(local, value=f"[{', '.join(['()'] * count)}]")
                                    if local.name in ("arg_mbs", "kwarg_mbs", "args_split", "kwargs_split")
                                    else local
                                    for local in frame.locals
                                ),
                            )
                            for frame in thread.frames
                        ),
                    )
                    for thread in look.threads
                ),
            )
            for look in found.looks
        )
        return replace(found, looks=looks)

    def rank(found: RankSnapshot) -> RankSnapshot:
        assert found.process is not None
        return replace(found, process=process(found.process, counts[found.rank]))

    return replace(job, ranks=tuple(map(rank, job.ranks)))


@pytest.mark.parametrize(
    ("counts", "culprits", "alternatives"),
    [((2, 2, 4, 2), (2,), ()), ((8, 2, 2, 2), (0,), ()), ((2, 2, 4, 4), (2, 3), ((0, 1),))],
)
def test_the_odd_stages_are_to_blame(
    counts: tuple[int, ...], culprits: tuple[int, ...], alternatives: tuple[tuple[int, ...], ...]
) -> None:
    found = api.diagnose(counting(api.load(case("attach_pp_micro")), dict(enumerate(counts))))
    assert (found.culprits, found.alternatives) == (culprits, alternatives)
    assert found.cause is not None
    assert found.cause.code == "HD202"
    assert (found.confidence == "possible") is bool(alternatives)


def test_where_all_count_alike_something_else_is_wrong() -> None:
    found = api.diagnose(counting(api.load(case("attach_pp_micro")), dict.fromkeys(range(4), 2)))
    assert not re.search(r"\d micro-batches", found.verdict)


def test_a_stage_that_only_waits_for_one_asleep_may_be_in_another_step() -> None:
    job = api.load(case("attach_pp_micro"))
    asleep = tuple(replace(rank, process=sleeping(rank.process)) if rank.rank == 1 else rank for rank in job.ranks)
    found = api.diagnose(replace(job, ranks=asleep))
    assert found.culprits == (1,)
    assert not re.search(r"\d micro-batches", found.verdict)


def sleeping(found: Process | None) -> Process:
    """The process, whose main thread sleeps in the user's code."""
    assert found is not None
    looks = tuple(
        replace(
            look,
            threads=tuple(
                replace(
                    thread,
                    wchan="hrtimer_nanosleep",
                    frames=tuple(frame for frame in thread.frames if "/site-packages/" not in frame.file),
                )
                for thread in look.threads
            ),
        )
        for look in found.looks
    )
    return replace(found, looks=looks)
