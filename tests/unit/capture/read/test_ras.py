"""NCCL's RAS service, played by real sockets: honest ones in each of NCCL's formats, and wild ones."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.read.ras import RasRank, ask, read_ras
from hangdoc.capture.read.ras_answers import parse_status
from hangdoc.model.nccl import CommunicatorMember, NcclStatus, OperationCount
from hangdoc.model.snapshot import Unavailable

# Put together from the formats in src/ras/client_support.cc of NCCL 2.26 to 2.30, and of 2.24.
TABLE = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH
    1         2         1         2         2         4   RUNNING      OK

Errors
======

"""
TEXT = (
    TABLE
    + """#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 2 managed by process 73 on node 10.0.0.1

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  Rank 2 has status NOCOMM -- GPU 2 managed by process 73 on node 10.0.0.1
  Communicator ranks have different Broadcast operation counts
  2 ranks have launched up to operation 5
  Rank 3 has not launched any operations -- GPU 3 managed by process 74 on node 10.0.0.1

  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 64
  Rank 3 has launched up to operation 60 -- GPU 3 (NVML 7) managed by process 74 on node 10.0.0.1

"""
)
OLD_TEXT = (
    TABLE
    + """#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 1,2

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 71 on node 10.0.0.1
  Rank 3 -- [process information not found]

"""
)


def member(number: int, *, node: str = "10.0.0.1") -> CommunicatorMember:
    return CommunicatorMember(number, pid=71 + number, node=node)


def document(counts: dict[int, dict[str, int]], silent: tuple[int, ...] = ()) -> str:
    ranks = [
        {"rank": n, "host": "10.0.0.1", "pid": 71 + n, "cuda_dev": n, "status": {}, "collective_counts": each}
        for n, each in counts.items()
    ]
    status = {"unresponsive": True, "considered_dead": False}
    missing = [{"rank": n, "host": "10.0.0.1", "pid": 71 + n, "status": status} for n in silent]
    communicator = {"hash": "0xcf264af53edbe986", "size": len(counts) + len(silent), "ranks": ranks}
    return json.dumps({"nccl_version": "2.29.1", "communicators": [{**communicator, "missing_ranks": missing}]})


DIFFERENT = document({0: {"AllReduce": 64}, 1: {"AllReduce": 64}, 3: {"AllReduce": 60}}, silent=(2,))


def honest(answer: str, *, knows_json: bool) -> Callable[[socket.socket], None]:
    """Answers line by line, as rasClientEventLoop does, and ends after the status."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                word = line.decode().strip().lower()
                if word.startswith("client protocol "):
                    connection.sendall(b"SERVER PROTOCOL 2\n")
                elif word.startswith("timeout ") or (word == "set format json" and knows_json):
                    connection.sendall(b"OK\n")
                elif word == "verbose status":
                    for start in range(0, len(answer), 700):
                        connection.sendall(answer[start : start + 700].encode())
                    return
                else:
                    connection.sendall(b"ERROR: Unknown command " + line)

    return serve


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(10)

        def run() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client has had enough
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def answer_of(serve: Callable[[socket.socket], None], seconds: float = 5.0) -> NcclStatus | Unavailable:
    with serving(serve) as port:
        return ask("127.0.0.1", port, seconds=seconds)


@pytest.mark.parametrize("knows_json", [True, False])
def test_each_format_tells_who_is_behind_and_who_is_silent(knows_json: bool) -> None:
    status = answer_of(honest(DIFFERENT if knows_json else TEXT, knows_json=knows_json))
    assert isinstance(status, NcclStatus)
    (found,) = status.communicators
    assert (found.name, found.size, found.silent, found.silent_count) == ("cf264af53edbe986", 4, (member(2),), 1)
    most, fewer = [count for count in found.counts if count.operation == "AllReduce"]
    assert (most.count, most.how_many) == (64, 2)
    assert fewer == OperationCount("AllReduce", 60, 1, (member(3),))


def test_the_text_tells_every_operation() -> None:
    status = parse_status(TEXT)
    assert status.seen == 3
    assert [(c.operation, c.count, c.how_many) for c in status.communicators[0].counts] == [
        ("Broadcast", 5, 2),
        ("Broadcast", 0, 1),
        ("AllReduce", 64, 2),
        ("AllReduce", 60, 1),
    ]


def test_nccl_2_24_counts_all_operations_together() -> None:
    (found,) = parse_status(OLD_TEXT).communicators
    assert found.silent == (CommunicatorMember(1), CommunicatorMember(2))
    assert [(c.operation, c.count, c.how_many) for c in found.counts] == [("", 6650, 26), ("", 6649, 2)]
    assert found.counts[1].members == (member(0), CommunicatorMember(3))


def test_a_job_without_differences_has_nothing_to_tell() -> None:
    assert parse_status(document({0: {"AllReduce": 1}, 1: {"AllReduce": 1}})) == NcclStatus((), 1)
    assert parse_status(TABLE + "Warnings\n========\n\n").communicators == ()


def test_a_rank_that_only_left_the_communicator_is_not_silent() -> None:
    left = json.loads(DIFFERENT)
    left["communicators"][0]["missing_ranks"][0]["status"] = {"unresponsive": False, "considered_dead": False}
    assert parse_status(json.dumps(left)).communicators[0].silent_count == 0


def never(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def endless_line(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65536)


def endless_answer(connection: socket.socket) -> None:
    connection.sendall(b"SERVER PROTOCOL 2\nOK\nOK\n")
    while True:
        connection.sendall(b'{"communicators": [' + b"[" * 65536)


def drop_by_drop(connection: socket.socket) -> None:
    connection.sendall(b"SERVER PROTOCOL 2\nOK\nOK\n")
    while True:
        connection.sendall(b"C")
        time.sleep(0.05)


def other_protocol(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hangs_up(connection: socket.socket) -> None:
    connection.recv(10)


@pytest.mark.parametrize("serve", [never, endless_line, endless_answer, drop_by_drop, other_protocol, hangs_up])
def test_a_wild_server_costs_its_deadline_at_most(serve: Callable[[socket.socket], None]) -> None:
    began = time.monotonic()
    answer = answer_of(serve, seconds=0.4)
    assert isinstance(answer, Unavailable)
    assert (answer.what, answer.why[:18]) == ("nccl", "NCCL's RAS service")
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    "answer", ["", "{", "[]", "{}", "garbage\n" * 99, '{"communicators": 3}', "[" * 50_000, "{" + "[" * 50_000]
)
def test_garbage_is_no_status(answer: str) -> None:
    assert isinstance(answer_of(honest(answer, knows_json=True)), Unavailable)


def test_a_long_text_is_not_read_line_by_line() -> None:
    """32 MiB of short lines take a gigabyte and some seconds, in which no other source is heard."""
    began = time.process_time()
    with pytest.raises(ValueError, match="more than 4 MiB of text"):
        parse_status("Communicators\n" + "ab\n" * (5 << 20))
    assert time.process_time() - began < 1


def test_wrong_types_are_passed_over() -> None:
    wild = {"hash": "0x1", "size": "4", "ranks": [3, {"rank": True, "collective_counts": {"A\n": 1}}, None]}
    assert parse_status(json.dumps({"communicators": [wild, 7, None, {"hash": 3}]})) == NcclStatus((), 4)


@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(noise: str) -> None:
    for text in (TEXT.replace("64", noise), "Communicators\n" + noise, '{"communicators": ["' + noise + '"]}'):
        with suppress(ValueError):
            parse_status(text)


RANK = """
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.sendall(b"SERVER PROTOCOL 2\\nOK\\nOK\\n")
asked = b""
while b"VERBOSE STATUS" not in asked:
    asked += connection.recv(100)
connection.sendall(sys.argv[2].encode())
"""


@contextmanager
def rank_process(port: int, answer: str = DIFFERENT) -> Iterator[tuple[int, int]]:
    """(pid, port) of a process that offers the service."""
    command = [sys.executable, "-c", RANK, str(port), answer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def test_the_service_of_a_rank_is_asked_and_its_members_are_ranks() -> None:
    with rank_process(0) as (pid, port):
        status = read_ras([RasRank(3, pid, f"localhost:{port}")], world_size=4)
    assert isinstance(status, NcclStatus)
    (found,) = status.communicators
    assert [m.rank for m in found.silent] == [2]
    assert [m.rank for m in found.counts[1].members] == [3]


def test_members_of_a_smaller_group_are_known_by_their_processes() -> None:
    with rank_process(0) as (pid, _port), rank_process(0) as (other, _):
        here = json.loads(DIFFERENT)
        here["communicators"][0]["ranks"][2]["pid"] = other
        with rank_process(0, json.dumps(here)) as (third, at):
            ranks = [RasRank(7, other, f"localhost:{at}"), RasRank(5, pid), RasRank(6, third)]
            status = read_ras(ranks, world_size=3)
    assert isinstance(status, NcclStatus)
    assert status.communicators[0].size == 4
    assert [m.rank for m in status.communicators[0].counts[1].members] == [7]
    assert [m.rank for m in status.communicators[0].silent] == [None]


def test_no_service_and_nothing_to_say() -> None:
    assert read_ras([]) is None
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert read_ras([RasRank(0, os.getpid(), f"localhost:{held.getsockname()[1]}")]) is None


def test_another_jobs_service_is_left_alone() -> None:
    """Not even connected to: its process would have ended."""
    with rank_process(0) as (pid, port), rank_process(0) as (other, _):
        assert read_ras([RasRank(0, other, f"localhost:{port}")]) is None
        with rank_process(port):
            answer = read_ras([RasRank(0, pid, f"localhost:{port}")])
    assert isinstance(answer, Unavailable)
    assert "another job" in answer.why
