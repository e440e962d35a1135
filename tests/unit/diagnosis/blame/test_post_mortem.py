"""The first cause of a crash: by the kind of the errors, then by their time."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessExit, Raised, Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

C10D = "/python/torch/distributed/distributed_c10d.py"
CLOSED = "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:29500"
FIT = Frame("/job/train.py", 40, "fit")
IN_CALL: Stack = (
    Frame(C10D, 3000, "all_reduce"),
    Frame("/job/train.py", 31, "step"),
    Frame("/job/train.py", 36, "fit"),
)
LOADING: Stack = (Frame("/job/data.py", 9, "__getitem__"), Frame("/job/train.py", 35, "fit"))
LOST = Raised("RuntimeError", CLOSED, IN_CALL)
BAD_LABEL = Raised("ValueError", "sample 12: label 'cat' is no number", LOADING)


def crashed(*ends: ProcessExit) -> Diagnosis:
    ranks = tuple(
        RankSnapshot(number, "host", "environment", process=Process(100 + number, 99, "rank"), exit=end)
        for number, end in enumerate(ends)
    )
    job = JobSnapshot(taken=100.0, mode="watch", world_size=len(ends), ranks=ranks, ended=True, exit_status=1)
    return diagnose(replace(job, library_roots=("/python",)))


def wrapped(at: float, cause: Raised, *, direct: bool = True) -> ProcessExit:
    """The end of a rank that raised its own error from another one, as every rank of the job does."""
    raised = (replace(cause, direct=direct),)
    return ProcessExit(at, 1, exception="StepFailed", stack=(FIT,), message="training failed", raised_from=raised)


def test_a_lost_peer_is_an_echo_though_it_was_raised_again_as_another_error_and_came_first() -> None:
    found = crashed(wrapped(90.0, LOST), wrapped(93.0, BAD_LABEL), wrapped(90.1, LOST, direct=False))
    assert found.culprits == (1,)
    assert found.cause is not None
    assert found.cause.code == "HD401"
    assert found.verdict.startswith("Rank 1 ended with StepFailed, raised from ValueError at ")
    assert "says: sample 12: label 'cat' is no number" in found.why


def test_an_error_in_the_handler_of_another_is_told_by_the_other() -> None:
    found = crashed(wrapped(90.0, BAD_LABEL, direct=False), wrapped(89.5, LOST))
    assert found.culprits == (0,)
    assert found.verdict.startswith("Rank 0 ended with StepFailed, raised after ValueError at data.py:9 __getitem__()")


def test_an_error_that_its_own_function_answered_with_another_is_told_by_that_one() -> None:
    looked_up = Raised("KeyError", "'cat'", (replace(FIT, line=38),))
    found = crashed(wrapped(90.0, looked_up, direct=False), wrapped(89.5, LOST))
    assert found.culprits == (0,)
    assert found.verdict.startswith("Rank 0 ended with StepFailed at train.py:40 fit()")
    assert "says: training failed" in found.why


def test_a_call_that_was_misused_is_the_failure_of_its_own_rank() -> None:
    misused = ProcessExit(90.0, 1, exception="TypeError", stack=IN_CALL, message="expected a Tensor, got a list")
    lost = ProcessExit(89.9, 1, exception="RuntimeError", stack=IN_CALL, message=CLOSED)
    assert crashed(lost, misused, lost).culprits == (1,)


def test_a_call_that_failed_outranks_calls_that_lost_their_peer() -> None:
    failed = ProcessExit(
        90.0, 1, exception="RuntimeError", stack=IN_CALL, message="Expected to have finished reduction"
    )
    lost = ProcessExit(89.9, 1, exception="RuntimeError", stack=IN_CALL, message=CLOSED)
    found = crashed(lost, failed, lost)
    assert (found.culprits, found.confidence) == ((1,), "likely")


def test_a_lost_connection_in_user_code_is_a_cause_only_where_there_is_no_other() -> None:
    refused = ProcessExit(89.0, 1, exception="ConnectionError", stack=LOADING, message="Connection refused: db:5432")
    lost = ProcessExit(89.5, 1, exception="RuntimeError", stack=IN_CALL, message=CLOSED)
    assert crashed(refused, lost).culprits == (0,)
    assert crashed(refused, replace(refused, exception="KeyError", at=90.0, message="'x'")).culprits == (1,)


def test_of_a_message_with_a_traceback_the_last_line_is_shown() -> None:
    text = "Caught KeyError in DataLoader worker 0.\nTraceback (most recent call last):\n  File\nKeyError: 'label'"
    found = crashed(ProcessExit(90.0, 1, exception="KeyError", stack=LOADING, message=text))
    assert "says: KeyError: 'label'" in found.why


WORLD = ProcessGroup("0", (0, 1, 2), "default_pg", "gloo")
DONE = Call("0", 1, 1, "all_reduce", 0, ((4,),), ("Float",))


def terminated_meanwhile(text: str, journal: Journal) -> Diagnosis:
    """Rank 1 was at no call, and its launcher ended it when the others had failed with that text."""
    lost = ProcessExit(90.0, 1, exception="RuntimeError", stack=IN_CALL, message=text)
    waiting = replace(journal, calls=(DONE, replace(DONE, sequence=2, op_id=2, completed=False)), handled="")
    ends = (lost, ProcessExit(90.3, signal=15), lost)
    ranks = tuple(
        RankSnapshot(number, "host", "probe", process=Process(100 + number, 99, "rank"), exit=end, journal=journal)
        for number, (end, journal) in enumerate(zip(ends, (waiting, journal, waiting), strict=True))
    )
    return diagnose(JobSnapshot(taken=100.0, mode="watch", world_size=3, ranks=ranks, ended=True, exit_status=1))


def test_the_rank_that_its_launcher_ended_in_its_clean_up_had_failed_first() -> None:
    journal = Journal("probe", (WORLD,), (DONE,), stacks=(IN_CALL,), handled="ValueError", handled_at=LOADING)
    found = terminated_meanwhile(CLOSED, replace(journal, handled_message="no label"))
    assert (found.culprits, found.alternatives, found.confidence) == ((1,), (), "likely")


def test_the_rank_that_the_others_waited_for_too_long_is_to_blame_for_their_time_out() -> None:
    found = terminated_meanwhile(
        "[/pytorch/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
        Journal("probe", (WORLD,), (DONE,), stacks=(IN_CALL,)),
    )
    assert (found.culprits, found.confidence) == ((1,), "likely")
