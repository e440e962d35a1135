"""Ranks asked for their dumps, as PyTorch's monitor thread answers: a byte in the pipe, and the file a moment later."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdoc.capture import nccl_sources
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_host
from hangdoc.capture.read.process_looks import Look
from hangdoc.capture.request import CaptureOptions, CaptureRequest

RANK = """
import os, sys, time
prefix, pipe = os.environ["TORCH_FR_DUMP_TEMP_FILE"], os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "1.pipe"
os.mkfifo(pipe)
reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
while not os.read(reading, 128):
    time.sleep(0.05)
time.sleep(0.7)
with open(prefix + "1", "wb") as file:
    file.write(sys.stdin.buffer.read())
    file.flush()
time.sleep(60)
"""


@contextmanager
def waiting_rank(folder: Path, dump: bytes) -> Iterator[int]:
    variables = {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/ask_"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", RANK], env={**os.environ, **variables}, **pipes) as process:  # type: ignore[call-overload]
        try:
            process.stdin.write(dump)
            process.stdin.close()
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


def dumped() -> bytes:
    entry = {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 5,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": time.time_ns(),
        "timeout_ms": 600_000,
        "state": "scheduled",
        "retired": False,
    }
    return pickle.dumps({"version": "2.10", "entries": [entry]}, protocol=2)


def request(pid: int, *, ask: bool) -> CaptureRequest:
    return CaptureRequest((RankTarget(1, pid, "environment", 2),), options=CaptureOptions(ask_dumps=ask))


def test_a_rank_is_asked_where_that_is_wished_and_its_new_dump_is_read(tmp_path: Path) -> None:
    with waiting_rank(tmp_path, dumped()) as pid:
        (tmp_path / "trace_1").write_bytes(dumped())  # a call that has not timed out: nobody knows if it still waits
        journals, notes = nccl_sources.own_dumps_of(request(pid, ask=False), [1], Look({}, {}), time.time())
        assert (journals, [note.rank for note in notes]) == ({}, [1])
        os.utime(tmp_path / "trace_1", (time.time() - 5, time.time() - 5))
        journals, notes = nccl_sources.own_dumps_of(request(pid, ask=True), [1], Look({}, {}), time.time())
    assert [call.sequence for call in journals[1].calls] == [5]
    assert notes == []


def test_a_rank_that_does_not_answer_costs_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_sources, "_WRITING_SECONDS", 0.1)
    with waiting_rank(tmp_path, b"") as pid:
        journals, (note,) = nccl_sources.own_dumps_of(request(pid, ask=True), [1], Look({}, {}), time.time())
    assert (journals, note.rank, note.why) == ({}, 1, "it wrote no dump in time")


def test_without_a_pipe_the_reason_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        asking = request(process.pid, ask=True)
        journals, notes = nccl_sources.own_dumps_of(asking, [1], Look({}, {}), time.time())
        assert nccl_sources.ask_ras(asking) is None
    assert journals == {}
    assert "PIPE_FILE is not set" in notes[0].why
    assert notes[0].remedy


SERVICE = """
import socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.sendall(b"SERVER PROTOCOL 2\\nOK\\nOK\\n")
asked = b""
while b"VERBOSE STATUS" not in asked:
    asked += connection.recv(100)
connection.sendall(sys.argv[1].encode())
connection.close()
sys.stdin.read()
"""


def test_a_capture_asks_nccl_and_keeps_the_answer() -> None:
    counts = [{"rank": n, "host": "10.0.0.1", "pid": n, "collective_counts": {"AllReduce": 9 - n}} for n in (0, 1)]
    answer = json.dumps({"communicators": [{"hash": "0xab", "size": 2, "ranks": counts}]})
    with subprocess.Popen([sys.executable, "-c", SERVICE, answer], stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"localhost:{int(process.stdout.readline())}"
            target = RankTarget(0, process.pid, "environment", 2, environment=(("NCCL_RAS_ADDR", address),))
            job = capture_host(CaptureRequest((target,), options=CaptureOptions(gap=0.2)))
        finally:
            process.kill()
    assert job.nccl is not None, job.unavailable
    assert [(count.count, count.members[0].rank) for count in job.nccl.communicators[0].counts] == [(9, 0), (8, 1)]
