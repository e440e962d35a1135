"""The journal's reader against sound answers, rubbish, and a hostile pickle."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorder_dumps import dump, entry

from hangdoc.capture.read import flight_recorder
from hangdoc.capture.read.flight_recorder import StackTable, parse
from hangdoc.capture.read.probe_client import ProbeClient, ProbeDetails, read_bye
from hangdoc.capture.read.recorder_entries import operation
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Unavailable


def read(content: dict[str, Any]) -> flight_recorder.Recorded:
    found = parse(content, StackTable.new())
    assert isinstance(found, flight_recorder.Recorded)
    return found


def test_a_gloo_call_is_complete_when_it_is_retired() -> None:
    table = StackTable.new()
    found = parse(dump(entry(1), entry(2, retired=False)), table)
    assert isinstance(found, flight_recorder.Recorded)
    first, second = found.calls
    assert (first.group, first.sequence, first.op_id, first.op) == ("0", 1, 1, "all_reduce")
    assert (first.completed, second.completed) == (True, False)
    assert first.input_sizes == ((3, 4),) and first.input_dtypes == ("Float",)
    assert first.thread_id == 140_000_000_000_000 and first.timeout_ms == 1_800_000
    assert first.stack == second.stack == 0
    assert table.stacks == [(Frame("/job/train.py", 12, "train"), Frame("/job/train.py", 40, "<module>"))]
    assert found.counters == (("0", 2, 1),)


def test_the_end_and_the_duration_of_a_call_are_kept_where_the_recorder_has_them() -> None:
    began = 1_795_000_000_000_000_000
    known = {"profiling_name": "nccl:all_reduce", "state": "completed", "time_discovered_completed_ns": began + 9}
    timed, noticed, odd, message = (
        entry(1, **known, duration_ms=0.25),
        entry(2, **known),
        entry(3, **known, duration_ms=float("nan")),
        entry(4, **known | {"profiling_name": "nccl:send 0->1"}, is_p2p=True, duration_ms=2),
    )
    found = read(dump(timed, noticed, odd, message, entry(5, duration_ms=-1.0), entry(6, duration_ms="1")))
    ends = [(call.completed_ns, call.duration_ns) for call in found.calls]
    assert ends == [(began + 9, 250_000), (began + 9, 0), (began + 9, 0), (0, 0), (0, 0)]
    assert [(m.completed_ns, m.duration_ns) for m in found.point_to_points] == [(began + 9, 2_000_000)]


def test_an_nccl_call_is_complete_by_its_state_and_has_its_point_to_point_calls() -> None:
    found = read(
        dump(
            entry(1, state="completed", retired=False, profiling_name="nccl:all_reduce_barrier"),
            entry(2, state="started", retired=False, profiling_name="nccl:_all_gather_base"),
            entry(3, is_p2p=True, profiling_name="nccl:recv 1<-0", process_group=("7", "stages"), retired=False),
            pg_config={"7": {"name": "7", "desc": "stages", "ranks": "[2, 5]"}},
        )
    )
    assert [(call.op, call.completed) for call in found.calls] == [
        ("barrier", True),
        ("all_gather_into_tensor", False),
    ]
    (received,) = found.point_to_points
    assert (received.op, received.peer, received.group, received.completed) == ("recv", 2, "7", False)
    assert [(group.name, group.members, group.description) for group in found.groups] == [
        ("7", (2, 5), "stages"),
        ("0", (), "default_pg"),
    ]


def test_a_recorder_whose_ring_is_full_says_so() -> None:
    assert read(dump(entry(1, record_id=0))).forgotten == 0
    assert read(dump(entry(900, record_id=899), entry(901, record_id=900))).forgotten == 899
    assert read(dump(entry(1, record_id="x"), 5)).forgotten == 0


@pytest.mark.parametrize(
    ("recorded", "op"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("c10d::_allgather_base_", "all_gather_into_tensor"),
        ("nccl:_reduce_scatter_base", "reduce_scatter_tensor"),
        ("gloo:barrier", "barrier"),
        ("xccl:something_new", "something_new"),
        ("", ""),
    ],
)
def test_operations_have_the_names_of_the_python_api(recorded: str, op: str) -> None:
    assert operation(recorded) == (op, -1)


def test_what_makes_no_sense_is_left_out_and_the_rest_stays() -> None:
    found = read(dump(entry(1), 5, {"frames": []}, entry(2, frames=[{"name": 1}]), entry(3, frames=None)))
    assert [call.sequence for call in found.calls] == [1, 3]
    assert found.calls[-1].stack == -1


def test_groups_without_a_name_stay_apart() -> None:
    found = read(dump(entry(1, process_group=("", "")), entry(1, process_group=("", ""), pg_id=3)))
    assert [call.group for call in found.calls] == ["#0", "#3"]


@pytest.mark.parametrize("version", ["3.0", "2", "", None, 2.10, "2.10; drop"])
def test_an_unknown_schema_is_refused(version: object) -> None:
    found = parse(dump(version=version), StackTable.new())
    assert isinstance(found, Unavailable) and "schema" in found.why


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(entry())), anything),
    st.dictionaries(st.sampled_from(sorted(dump())), anything),
)
def test_no_value_in_a_dump_raises(of_entry: dict[str, Any], of_dump: dict[str, Any]) -> None:
    assert isinstance(parse(dump(entry(1) | of_entry), StackTable.new()), flight_recorder.Recorded)
    found = parse(dump(entry(1)) | of_dump, StackTable.new())
    assert isinstance(found, (flight_recorder.Recorded, Unavailable))


# The client, against a server that we play


def answer(header: dict[str, Any] | None = None, body: bytes = b"", **changes: Any) -> bytes:
    known = {"protocol": 1, "pid": 7, "rank": 1, "world_size": 2, "point_to_points": 3, "bytes": len(body)}
    known["parts"] = [len(body)] if body else []
    return json.dumps(known | (header or {}) | changes).encode() + b"\n" + body


COUNTERS = json.dumps({"pg_status": {"0": {"last_enqueued_collective": "9", "last_completed_collective": "8"}}})


@contextmanager
def server(path: Path, *replies: bytes | None) -> Iterator[list[bytes]]:
    """Answers one request per reply; keeps the connection only after a JSON body. None: silence."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    asked: list[bytes] = []
    over = threading.Event()

    def serve() -> None:
        waiting = list(replies)
        while waiting:
            try:
                connection, _ = listener.accept()
            except OSError:  # the test is over
                return
            with connection, suppress(OSError):  # the client may hang up first
                while waiting and (line := connection.recv(4096)):
                    asked.append(line)
                    reply = waiting.pop(0)
                    if reply is None:
                        over.wait(20)
                        return
                    connection.sendall(reply)
                    if not reply.endswith(b"}"):  # a whole answer ends with its JSON body
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        listener.close()


def test_counters_over_one_connection(tmp_path: Path) -> None:
    with server(tmp_path / "s", *[answer(body=COUNTERS.encode())] * 2) as asked:
        client = ProbeClient(tmp_path / "s")
        for _ in range(2):
            found = client.counters(5)
            assert found is not None
            assert (found.pid, found.rank, found.groups, found.point_to_points) == (7, 1, {"0": (9, 8)}, 3)
        assert asked == [b'{"q": "counters"}\n'] * 2
        client.close()


def test_counters_of_a_torch_without_a_recorder_fall_back_to_the_backends(tmp_path: Path) -> None:
    with server(tmp_path / "s", answer(sequences={"0": 4})):
        found = ProbeClient(tmp_path / "s").counters(5)
        assert found is not None and found.groups == {"0": (4, -1)}


def test_a_broken_connection_is_made_anew(tmp_path: Path) -> None:
    whole = answer(body=COUNTERS.encode())
    with server(tmp_path / "s", answer(), whole, whole):
        client = ProbeClient(tmp_path / "s")
        assert client.counters(5) is not None  # and the server hangs up
        assert client.counters(5) is not None
        client.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        answer(bytes=-1),
        answer(bytes=1 << 40),
        answer(bytes=10),
        answer(bytes="9"),
        answer(protocol=2),
        answer() + b"too much",
        answer(body=b"not json"),
        answer(body=b"[]"),
        answer(body=b"{}", parts=[1]),
        answer(body=b"{}", parts=[3, -1]),
        answer(body=b"{}", parts=None),
    ],
)
def test_rubbish_is_no_answer(tmp_path: Path, reply: bytes) -> None:
    with server(tmp_path / "s", reply, reply):
        client = ProbeClient(tmp_path / "s")
        assert client.counters(5) is None
        if not reply.endswith((b"json", b"[]")):  # a body of another kind is the recorder's trouble alone
            assert isinstance(client.details(5), Unavailable)


def test_silence_ends_at_the_deadline(tmp_path: Path) -> None:
    with server(tmp_path / "s", None):
        began = time.monotonic()
        assert ProbeClient(tmp_path / "s").counters(0.2) is None
        assert time.monotonic() - began < 5


def test_nobody_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "gone", tmp_path / "file", tmp_path / ("long" * 50)):
        client = ProbeClient(path)
        assert client.counters(1) is None
        found = client.details(1)
        assert isinstance(found, Unavailable) and found.remedy


def details_answer(**changes: Any) -> bytes:
    header = {
        "stacks": [[["/job/a.py", 3, "f"]], [["/job/a.py", 9, "g"]]],
        "group_table": [["0", [0, 1], "default_pg", "gloo", 1]],
        "point_to_point_calls": [["send", "0", 6, 1, 0, 0, 123, False, 55]],
        "forgotten": 12,
        "store_wait_calls": [["wait", ["key"], 0, 5, 55]],
        "attributes": [["/job/a.py", 3, "f", "warm", "True", "self.options"]],
        "first_store": 1,
        "torch": "2.13.0",
        "library_roots": ["/usr/lib/python3"],
    }
    return answer(header | changes, pickle.dumps(dump(entry(1)), protocol=2))


def test_details_join_the_recorder_and_the_probe(tmp_path: Path) -> None:
    with server(tmp_path / "s", details_answer()):
        found = ProbeClient(tmp_path / "s").details(5)
    assert isinstance(found, ProbeDetails) and found.unavailable == ()
    journal = found.journal
    assert journal.source == "probe"
    assert journal.groups[0].key == ("0", (0, 1))
    assert journal.stack(journal.groups[0].created_at) == (Frame("/job/a.py", 9, "g"),) == found.first_store
    assert journal.stack(journal.calls[0].stack)[0].function == "train"
    (sent,) = journal.point_to_points
    assert (sent.op, sent.peer, sent.op_id, sent.completed) == ("send", 1, 6, False)
    assert journal.forgotten == 12
    assert journal.stack(sent.stack) == (Frame("/job/a.py", 3, "f"),)
    assert journal.store_waits[0].keys == ("key",)
    assert (journal.attributes[0].owner, journal.attributes[0].name) == ("self.options", "warm")
    assert found.library_roots == ("/usr/lib/python3",)


def test_two_recorders_are_joined_in_the_order_of_their_calls(tmp_path: Path) -> None:
    common = pickle.dumps(dump(entry(1), entry(3)), protocol=2)
    nccl = pickle.dumps(dump(entry(2, process_group=("1", "gpus"))), protocol=2)
    line = details_answer().split(b"\n", 1)[0]
    header = json.loads(line) | {"bytes": len(common + nccl), "parts": [len(common), len(nccl)]}
    with server(tmp_path / "s", json.dumps(header).encode() + b"\n" + common + nccl):
        found = ProbeClient(tmp_path / "s").details(5)
    assert isinstance(found, ProbeDetails)
    assert [(call.group, call.sequence) for call in found.journal.calls] == [("0", 1), ("1", 2), ("0", 3)]


def test_counters_of_two_recorders_do_not_mix(tmp_path: Path) -> None:
    with server(tmp_path / "s", answer(body=2 * COUNTERS.encode(), parts=2 * [len(COUNTERS)])):
        found = ProbeClient(tmp_path / "s").counters(5)
        assert found is not None and found.groups == {"0": (9, 8), "1:0": (9, 8)}


def test_a_recorder_that_failed_leaves_the_rest(tmp_path: Path) -> None:
    header = json.loads(details_answer().split(b"\n", 1)[0]) | {"bytes": 0, "parts": []}
    with server(tmp_path / "s", json.dumps(header).encode() + b"\n"):
        found = ProbeClient(tmp_path / "s").details(5)
    assert isinstance(found, ProbeDetails)
    assert found.journal.groups and found.journal.point_to_points and not found.journal.calls
    assert "gave no history" in found.unavailable[0].why and found.unavailable[0].remedy


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(json.loads(details_answer().split(b"\n", 1)[0]))), anything))
def test_no_note_raises(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / f"{os.getpid()}.bye"
    line, body = details_answer(at=1.5, raised_at=[["/job/a.py", 3, "f"]]).split(b"\n", 1)
    header = json.loads(line) | {
        name: value for name, value in changes.items() if not isinstance(value, bytes) and name != "protocol"
    }
    path.write_bytes(json.dumps(header, default=repr).encode() + b"\n" + body)
    found = read_bye(path)
    if not changes.keys() & {"bytes", "parts"}:
        assert found is not None and found.at == 1.5


def test_notes_that_are_not_whole_are_none(tmp_path: Path) -> None:
    whole = details_answer(at=2.0, exception="ValueError", raised_at=[["/job/a.py", 3, "f"]])
    path = tmp_path / "7.bye"
    assert read_bye(path) is None
    for data in (b"", whole[:50], whole[:-1], details_answer()):
        path.write_bytes(data)
        assert read_bye(path) is None
    path.write_bytes(whole)
    found = read_bye(path)
    assert found is not None
    assert (found.at, found.exception, found.stack) == (2.0, "ValueError", (Frame("/job/a.py", 3, "f"),))


@pytest.mark.parametrize(("numbers", "barrier"), [((1, 1), 2), ((2, 3), 4)])
def test_a_batch_of_messages_may_take_a_number_of_the_collectives(numbers: tuple[int, int], barrier: int) -> None:
    """torch 2.11 gives its entries the number of the collective before it, torch 2.5 one of its own."""
    message = {"state": "completed", "is_p2p": True, "profiling_name": "nccl:send 0->1"}
    closes = {"state": "completed", "profiling_name": "nccl:coalesced"}
    entries = [entry(1, state="completed", profiling_name="nccl:all_reduce")]
    for batch, number in enumerate(numbers, 1):
        entries += [
            entry(number, p2p_seq_id=batch, **message),
            entry(number, p2p_seq_id=batch, **closes),
        ]
    entries.append(entry(barrier, state="scheduled", retired=False, profiling_name="nccl:all_reduce_barrier"))
    found = read(dump(*entries))
    assert [(call.op, call.sequence) for call in found.calls] == [("all_reduce", 1), ("barrier", 2)]
    assert [each.op for each in found.point_to_points] == ["send", "send"]
