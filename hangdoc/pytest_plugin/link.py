"""Lines of JSON over a socket pair, between the tests and the helper. It never blocks for long and never raises."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

_SEND_SECONDS = 2.0
"""How long a test may wait for a helper that takes nothing. Judgement."""
_LONGEST_LINE = 1 << 20

Message = dict[str, Any]


class Link:
    """One end. ``closed``: the other end is gone, or does not follow."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._unread = b""
        self.closed = False

    def fileno(self) -> int:
        """Its descriptor, to wait for."""
        return self._socket.fileno()

    def send(self, **message: Any) -> bool:
        """True if the message was sent whole."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        deadline = time.monotonic() + _SEND_SECONDS
        while data and not self.closed:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:  # noqa: PERF203 - of a pair that is full
                left = deadline - time.monotonic()
                self.closed = left <= 0 or not _ready(self._socket, select.POLLOUT, left)
            except OSError:
                self.closed = True
        return not data

    def receive(self, seconds: float = 0.0) -> list[Message]:
        """The messages that have come, the oldest first; waits at most ``seconds`` for one."""
        if self.closed or not _ready(self._socket, select.POLLIN, seconds):
            return []
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self._unread += data
            if not data or len(self._unread) > _LONGEST_LINE:
                self.closed = True
                break
        *lines, self._unread = self._unread.split(b"\n")
        return [message for line in lines if (message := _read(line))]

    def close(self) -> None:
        """The other end notices."""
        self.closed = True
        self._socket.close()


def _ready(connection: socket.socket, event: int, seconds: float) -> bool:
    poll = select.poll()
    try:
        poll.register(connection, event)
    except ValueError:  # closed
        return False
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _read(line: bytes) -> Message:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
