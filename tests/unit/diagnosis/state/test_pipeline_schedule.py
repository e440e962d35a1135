"""What the locals of a pipeline's schedule tell of a rank that waits in it."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.state.activity import describe
from hangdoc.diagnosis.state.pipeline_schedule import (
    items,
    micro_batches,
    micro_batches_of_object,
    peer_in_schedule,
)
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Local, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot

SCHEDULES = "/venv/lib/python3.11/site-packages/torch/distributed/pipelining/schedules.py"
WORK = "[<torch._C._distributed_c10d.Work>]"


def waiting(**values: str) -> Stack:
    """A stack in the wait of a schedule, whose step has these locals."""
    step = tuple(Local(name, value) for name, value in values.items())
    return (
        Frame(SCHEDULES, 683, "_wait_batch_p2p", (Local("work", WORK),)),
        Frame(SCHEDULES, 938, "ScheduleGPipe._step_microbatches", step),
        Frame("/home/me/train.py", 30, "train"),
    )


def activity(stack: Stack, *, state: str = "S", cpu: float = 0.0) -> Activity:
    looks = tuple(
        ProcessState(
            100.0 + at,
            state,
            cpu=5.0 + at * cpu,
            threads=(Thread(71, "MainThread", state, "futex_do_wait", cpu=5.0 + at * cpu, frames=stack),),
        )
        for at in range(2)
    )
    return describe(RankSnapshot(0, "node", "probe", process=Process(71, 1, "rank", looks=looks)), None)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[(), ()]", 2),
        ("[]", 0),
        ("[(<Tensor>, <Tensor>), {}, <Thing at (1, 2)>]", 3),
        ("[(), (), ...]", None),
        ("[(), …]", None),
        ("[(), (<Tensor>, ...)]", 2),
        ("[((), ()]", None),
        ("((), ())", None),
        ("None", None),
    ],
)
def test_the_items_of_a_list_are_counted_by_its_text(text: str, count: int | None) -> None:
    assert items(text) == count


@pytest.mark.parametrize(
    ("works", "peer"),
    [
        (f"{{1: {WORK}}}", 1),
        (f"{{12: {WORK}, ...}}", None),
        (f"{{0: {WORK}, 2: {WORK}}}", None),
        ("{}", None),
        ("<dict>", None),
    ],
)
def test_works_name_the_peer_where_there_is_one(works: str, peer: int | None) -> None:
    assert peer_in_schedule(waiting(works=works)) == peer


def test_a_rank_in_a_schedule_waits_for_a_message_of_its_neighbor() -> None:
    found = activity(waiting(works=f"{{2: {WORK}}}", arg_mbs="[(), (), ()]"))
    assert (found.kind, found.peer, found.landmark) == (
        ActivityKind.RECV,
        2,
        "the pipeline schedule passes micro-batches",
    )
    assert micro_batches(found.stack) == 3


def test_a_rank_that_works_in_a_schedule_waits_for_nobody() -> None:
    assert activity(waiting(works=f"{{2: {WORK}}}"), state="R", cpu=0.9).kind == ActivityKind.COMPUTING


def test_locals_of_the_users_own_functions_of_these_names_say_nothing() -> None:
    stack = (Frame("/home/me/schedules.py", 5, "step", (Local("arg_mbs", "[(), ()]"), Local("works", "{1: [1]}"))),)
    assert (micro_batches(stack), peer_in_schedule(stack)) == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("kwarg_mbs", "[{}, {}]", 2),
        ("kwarg_mbs", "[{'a': (1, 2)}, {}, {}]", 3),
        ("num_microbatches", "6", 6),
        ("arg_mbs", "[(<Tensor>), (<Tensor>)]", 2),
        ("kwarg_mbs", "[{}, {}, …]", None),
        ("kwarg_mbs", "[]", None),
        ("losses", "[1, 2]", None),
    ],
)
def test_micro_batches_are_what_the_arguments_of_a_step_are_cut_into(name: str, value: str, count: int | None) -> None:
    assert micro_batches(waiting(**{name: value})) == count


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        ({"schedule._n_microbatches": "6"}, 6),
        ({"self.schedule._n_microbatches": "6", "schedule._n_microbatches": "6"}, 6),
        ({"train._n_microbatches": "8", "evaluation._n_microbatches": "6"}, None),
        ({"schedule._num_stages": "4"}, None),
    ],
)
def test_the_schedule_that_a_function_holds_keeps_its_number(kept: dict[str, str], count: int | None) -> None:
    frame = Frame("/home/me/train.py", 34, "evaluate", tuple(Local(name, value) for name, value in kept.items()))
    assert micro_batches_of_object((frame,)) == count
