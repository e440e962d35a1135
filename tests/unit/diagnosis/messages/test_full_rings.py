"""Verdicts on messages where the probe's ring has forgotten the older ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from simulator import Op, Program, run, snapshot

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis

WORLD = ("0", (0, 1, 2))
BATCHES = 16


def pipeline(sent: int) -> dict[int, tuple[Op, ...]]:
    """Three stages. The first one sends ``sent`` batches and meets the others in a barrier."""
    barrier = Op(99, "barrier", WORLD, (90,))
    out = [Op(n, "send", WORLD, (10,), peer=1) for n in range(BATCHES)][:sent]
    middle = [
        op
        for n in range(BATCHES)
        for op in (Op(n, "recv", WORLD, (20,), peer=0), Op(100 + n, "send", WORLD, (21,), peer=2))
    ]
    last = [Op(100 + n, "recv", WORLD, (30,), peer=1) for n in range(BATCHES)]
    return {rank: (*calls, barrier) for rank, calls in enumerate((out, middle, last))}


def verdict(sent: int, ring: int | None) -> Diagnosis:
    """Of the pipeline where every rank keeps ``ring`` messages."""
    calls = pipeline(sent)
    job = snapshot(run(random.Random(1), Program(3, ((WORLD,),), calls, {}), calls))
    ranks = []
    for each in job.ranks:
        assert each.journal is not None
        points = each.journal.point_to_points
        kept = points[-ring:] if ring else points
        journal = replace(each.journal, point_to_points=kept, forgotten=len(points) - len(kept))
        ranks.append(replace(each, journal=journal))
    return diagnose(replace(job, ranks=tuple(ranks)))


def test_a_journal_that_is_complete_gives_exact_counts() -> None:
    found = verdict(BATCHES - 1, None)
    assert found.culprits == (0,)
    assert "Rank 1 has issued 16 recvs from rank 0, and rank 0 15 sends to it" in found.why


@pytest.mark.parametrize("ring", [1, 7, 12, 15])
def test_a_full_ring_gives_no_counts(ring: int) -> None:
    found = verdict(BATCHES - 1, ring)
    text = f"{found.verdict} {found.why} {found.fix} {found.sure}"
    assert found.culprits == (0,)
    assert found.cause is not None
    assert found.cause.code == "HD202"
    assert "fewer" not in text
    assert "has issued" not in text


@pytest.mark.parametrize("ring", [None, 7])
def test_a_pipeline_that_works_has_nothing_alone(ring: int | None) -> None:
    assert "HD202" not in str(verdict(BATCHES, ring).cause)
