"""A launcher that outlives its ranks for a while is no hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis import diagnose
from hangdoc.model.process import Process, ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def job(*exits: ProcessExit | None) -> JobSnapshot:
    ranks = tuple(
        RankSnapshot(number, "host", "environment", process=Process(100 + number, 99, "rank"), exit=end)
        for number, end in enumerate(exits)
    )
    return JobSnapshot(taken=100.0, mode="watch", stalled_for=6.0, world_size=len(exits), ranks=ranks)


@pytest.mark.parametrize("status", [0, None])
def test_all_ranks_ended_well(status: int | None) -> None:
    diagnosis = diagnose(job(ProcessExit(90.0, status), ProcessExit(91.0, status)))
    assert (diagnosis.outcome, diagnosis.culprits) == ("healthy", ())


@pytest.mark.parametrize("end", [ProcessExit(90.0, 1), ProcessExit(90.0, signal=9), ProcessExit(90.0, exception="E")])
def test_a_failure_among_them_is_told(end: ProcessExit) -> None:
    assert diagnose(job(ProcessExit(90.0, 0), end)).outcome != "healthy"


@pytest.mark.parametrize(("leaving", "cause"), [(True, "HD703"), (False, "HD402")])
def test_an_abort_while_python_shuts_down_is_told_from_one_in_the_program(leaving: bool, cause: str) -> None:
    ended = replace(job(ProcessExit(90.0, 0), ProcessExit(90.0, signal=6, leaving=leaving)), ended=True, exit_status=1)
    diagnosis = diagnose(ended)
    assert (diagnosis.outcome, diagnosis.culprits) == ("crashed", (1,))
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == cause


@pytest.mark.parametrize("number", [9, 15])
def test_only_signal_9_may_be_of_the_out_of_memory_killer(number: int) -> None:
    ended = replace(job(*[ProcessExit(90.0, signal=number, oom_kills=2)] * 2), ended=True, exit_status=1)
    diagnosis = diagnose(ended)
    assert diagnosis.cause is not None
    assert diagnosis.outcome == "crashed"
    assert ("memory" in f"{diagnosis.why} {diagnosis.fix}") == (number == 9)
