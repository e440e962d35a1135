"""Workers that read dumps, forked from one process: starting each anew takes most of the time that a folder takes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc import interpreter
from hangdoc.capture.dumps import workers

_PARENT = """
import os, signal, socket
from hangdoc.capture.dumps import worker
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with socket.socket(fileno=os.dup(0)) as asked:
    while True:
        _, files, _, _ = socket.recv_fds(asked, 1, 1)
        if not files:
            break
        if not (number := os.fork()):
            asked.close()
            os.dup2(files[0], 0)
            os.close(files[0])
            worker.main()
            os._exit(0)
        os.close(files[0])
        asked.sendall(number.to_bytes(4, "little"))
"""


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Meanwhile workers are forked, with the limits that they always have; one that fails does not tell by what."""
    ours, theirs = socket.socketpair()
    command = interpreter.command(_PARENT, options=("-S",))
    parents: list[subprocess.Popen[bytes]] = []

    class Forked:
        def __init__(self, _: list[str], *, stdin: int, **options: Any) -> None:
            if not parents:
                parents.append(
                    subprocess.Popen(command, env=interpreter.environment(), stdin=theirs, start_new_session=True)
                )
            socket.send_fds(ours, [b"\0"], [stdin])
            self.pid = int.from_bytes(ours.recv(4, socket.MSG_WAITALL), "little")

        def kill(self) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

        def wait(self) -> int:
            return -signal.SIGKILL

    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "subprocess", SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL))
        try:
            yield
        finally:
            for parent in parents:
                parent.kill()
                parent.wait()
