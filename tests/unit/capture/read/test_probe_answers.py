"""What a probe answers: the root of a collective is noted beside the messages, and belongs to the recorded call."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from hangdoc.capture.read.probe_answers import details
from hangdoc.model.journal import Journal


def recorded(number: int, op: str) -> dict[str, Any]:
    return {
        "frames": [],
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "op_id": number,
        "profiling_name": f"gloo:{op}",
        "time_created_ns": number,
        "retired": True,
        "is_p2p": False,
    }


def noted(op: str, number: int, peer: int) -> list[Any]:
    """[op, group, op_id, peer, tag, stack, ns, returned, thread], as the probe writes it."""
    return [op, "0", number, peer, 0, -1, number, True, 1]


def journal(notes: list[list[Any]], *ops: str) -> Journal:
    body = pickle.dumps(
        {"version": "2.10", "entries": [recorded(number, op) for number, op in enumerate(ops, 1)], "pg_status": {}}
    )
    header = {
        "pid": 1,
        "parts": [len(body)],
        "group_table": [["0", [4, 7], "default_pg", "gloo", -1]],
        "point_to_point_calls": notes,
    }
    return details(header, body).journal


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather"])
def test_a_rooted_call_gets_its_root_by_its_place_in_the_group(op: str) -> None:
    found = journal([noted(op, 1, 7)], op)
    assert [(call.op, call.root) for call in found.calls] == [(op, 1)]
    assert found.point_to_points == ()


@pytest.mark.parametrize("op", ["send", "recv", "recv_anysource", "monitored_barrier"])
def test_a_message_stays_a_message(op: str) -> None:
    found = journal([noted(op, 1, 7)], "broadcast")
    assert [call.op for call in found.point_to_points] == [op]
    assert found.calls[0].root is None


@pytest.mark.parametrize("op", ["allreduce", "all_reduce", "allgather", "reduce_scatter"])
def test_a_call_of_another_kind_with_the_number_of_a_root_gets_none(op: str) -> None:
    assert journal([noted("reduce", 1, 7)], op).calls[0].root is None


def test_a_root_outside_of_the_group_is_left_out() -> None:
    assert journal([noted("broadcast", 1, 5)], "broadcast").calls[0].root is None


def hooked(*names: str, retired: bool) -> Journal:
    """What a rank says of calls that c10d's hook recorded; its operations are counted from 0."""
    entries = [
        recorded(number, name) | {"op_id": number - 1, "profiling_name": f"board:{name}", "retired": retired}
        | {"thread_id": "1", "time_created_ns": 10 * number, "is_p2p": name.startswith("recv"), "p2p_seq_id": number}
        for number, name in enumerate(names, 1)
    ]  # fmt: skip
    body = pickle.dumps({"version": "2.10", "entries": entries, "pg_status": {}})
    # The first broadcast was issued by C++: the probe has noted the second one, and a message.
    notes = [["broadcast", "0", 2, 7, 0, -1, 19, True, 1], ["recv", "0", 9, 4, 0, -1, 29, False, 1]]
    header = {
        "pid": 1,
        "parts": [len(body)],
        "group_table": [["0", [4, 7], "default_pg", "board", -1]],
        "point_to_point_calls": notes,
    }
    return details(header, body).journal


def test_of_a_recorder_that_counts_by_itself_the_times_tell_the_root() -> None:
    found = hooked("broadcast", "broadcast", "broadcast", retired=True)
    assert [call.root for call in found.calls] == [None, 1, None]


@pytest.mark.parametrize("retired", [True, False])
def test_messages_come_from_the_source_that_knows_when_they_end(retired: bool) -> None:
    found = hooked("broadcast", "broadcast", "recv 0<-1", retired=retired)
    peer = 4 if retired else 7  # the probe's, the recorder's
    assert [(m.op, m.peer, m.completed) for m in found.point_to_points] == [("recv", peer, False)]


def test_calls_of_several_recorders_keep_what_is_unsure_of_them() -> None:
    parts = [
        pickle.dumps({"version": "2.10", "entries": [recorded(number, "barrier") | {"profiling_name": name}]})
        for number, name in ((2, "gloo:barrier"), (1, "board:barrier"), (3, "xccl:barrier"))
    ]
    header = {"pid": 1, "parts": [len(part) for part in parts]}
    found = details(header, b"".join(parts))
    assert [call.sequence for call in found.journal.calls] == [1, 2, 3]
    assert found.unsure_calls == (0, 2)
