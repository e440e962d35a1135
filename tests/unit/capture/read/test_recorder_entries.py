"""How far a call has come, as the recorders of different backends say it."""

from __future__ import annotations

import pytest
from recorder_dumps import config, dump, entry

from hangdoc.capture.read.flight_recorder import Recorded, StackTable, parse
from hangdoc.capture.read.recorder_entries import Progress, progress_of

SCHEDULED = {"state": "scheduled", "retired": False}
STARTED = {"state": "started", "retired": False}
RETIRED = {"state": "scheduled", "retired": True}
DONE = {"state": "completed", "retired": True}
PENDING = Progress("", completed=False, hooked=True)
UNSURE = Progress("", completed=True, unsure=True, hooked=True)


@pytest.mark.parametrize(
    ("library", "said", "known"),
    [
        ("gloo", SCHEDULED, Progress("", completed=False)),
        ("gloo", RETIRED, Progress("", completed=True)),
        ("nccl", STARTED, Progress("started", completed=False)),
        ("nccl", RETIRED, Progress("scheduled", completed=False, gave_up=True)),
        ("hccl", RETIRED, Progress("scheduled", completed=False, gave_up=True)),
        ("nccl", DONE, Progress("completed", completed=True)),
        # A call that failed stays as it is: nothing has given up on it.
        ("nccl2", SCHEDULED, Progress("scheduled", completed=False, hooked=True)),
        ("nccl2", DONE, Progress("completed", completed=True, hooked=True)),
        ("nccl-lazy", SCHEDULED, Progress("scheduled", completed=False, hooked=True)),
        # Retired when it was issued: its group's default backend tells the hook nothing.
        ("nccl2", RETIRED, UNSURE),
        ("board", RETIRED, UNSURE),
        ("ucc", SCHEDULED, PENDING),
        ("a:b", DONE, Progress("", completed=True, hooked=True)),
        ("xccl", SCHEDULED, Progress("", completed=True, unsure=True)),
        ("xccl", RETIRED, Progress("", completed=True, unsure=True)),
        ("xccl", DONE, Progress("completed", completed=True)),
    ],
)
def test_progress(library: str, said: dict[str, object], known: Progress) -> None:
    assert progress_of(entry(profiling_name=f"{library}:all_reduce", **said)) == known


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_torchcomms_retires_what_it_has_issued(backend: str) -> None:
    """Its groups have no other description than the backend's name."""
    comm = {"process_group": ("main_comm", backend), "profiling_name": f"{backend}:all_reduce"}
    assert progress_of(entry(**comm, **RETIRED)) == UNSURE
    assert progress_of(entry(**comm, **DONE)).completed


def test_a_job_of_xccl_has_nothing_under_way_for_certain() -> None:
    calls = [entry(number, profiling_name="xccl:allreduce", **SCHEDULED) for number in (1, 2, 3)]
    recorded = parse(dump(*calls), StackTable.new())
    assert isinstance(recorded, Recorded)
    assert [call.completed for call in recorded.calls] == [True] * 3
    assert (recorded.unsure_calls, recorded.gave_up, recorded.active_only) == ((0, 1, 2), (), False)


def test_a_recv_from_anybody_and_a_split_have_their_python_names() -> None:
    calls = [
        entry(1, profiling_name="nccl2:recv 1<-?", is_p2p=True, p2p_seq_id=1, **SCHEDULED),
        entry(1, profiling_name="nccl2:split", **SCHEDULED),
        entry(2, profiling_name="nccl2:new_window", **SCHEDULED),
    ]
    recorded = parse(dump(*calls, pg_config=config(2)), StackTable.new())
    assert isinstance(recorded, Recorded)
    assert [(message.op, message.peer) for message in recorded.point_to_points] == [("recv_anysource", -1)]
    assert [(call.op, call.completed) for call in recorded.calls] == [("split_group", False), ("new_window", False)]
