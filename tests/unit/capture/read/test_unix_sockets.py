"""The other ends of AF_UNIX sockets, as the kernel tells them."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangdoc.capture.assemble import blocking_files
from hangdoc.capture.read import procfs, unix_sockets
from hangdoc.capture.read.sockets import Sockets
from hangdoc.capture.read.unix_sockets import unix_peers
from hangdoc.model.process import Frame, OpenFile


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def inode(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def test_each_end_names_the_other(pair: tuple[socket.socket, socket.socket]) -> None:
    found = unix_peers(deadline=5.0)
    assert found[inode(pair[0])] == inode(pair[1])
    assert found[inode(pair[1])] == inode(pair[0])
    with socket.socket(socket.AF_UNIX) as alone:
        assert inode(alone) not in unix_peers(deadline=5.0)


def test_a_thread_that_reads_is_seen_with_the_process_beyond(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    reader = threading.Thread(target=ours.recv, args=(1,))
    with subprocess.Popen(waits, stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),)) as other:
        theirs.close()
        reader.start()
        found: tuple[OpenFile, ...] = ()
        deadline = time.monotonic() + 20
        while not found and time.monotonic() < deadline:
            found = blocked(reader.native_id)
            time.sleep(0.02)
        assert [(file.target.partition(" to ")[0], file.operation) for file in found] == [
            (f"socket:unix {inode(ours)}", "recvfrom")
        ]
        assert found[0].peers == (other.pid,)
        assert other.stdin is not None
        other.stdin.close()
        ours.shutdown(socket.SHUT_RDWR)
        reader.join()


def blocked(tid: int | None) -> tuple[OpenFile, ...]:
    """What that thread of this process blocks on. A stack is what marks a thread of the program's."""
    look = procfs.look(os.getpid())
    assert look is not None
    threads = [replace(t, frames=(Frame("/job/train.py", 1, "read"),)) for t in look.threads if t.tid == tid]
    states = {os.getpid(): replace(look, threads=(look.threads[0], *threads))}
    return blocking_files(states, Sockets()).get(tid or 0, ())


@pytest.mark.parametrize(
    "answer",
    [b"", b"x" * 15, struct.pack("=IHHII", 3, 20, 0, 1, 0), struct.pack("=IHHII", 24, 20, 0, 1, 0) + b"\xff" * 8],
)
def test_rubbish_is_no_peer(answer: bytes) -> None:
    assert [pair for kind, body in unix_sockets._messages(answer) for pair in unix_sockets._pair(body)] == []
