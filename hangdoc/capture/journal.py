"""Ask a rank's probe, over its unix socket; read the note it left at exit. Bounded in time and size.

A probe may be silent (the GIL is held), gone, or not a probe at all: every answer is checked, and whatever
does not fit is no answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangdoc.capture import probe_answers
from hangdoc.capture.dump_folder import read_dump_folder
from hangdoc.capture.flight_recorder import MOST_BYTES
from hangdoc.capture.probe_answers import ProbeCounters, ProbeDetails
from hangdoc.capture.text import clean
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import Unavailable

__all__ = ["ProbeBye", "ProbeClient", "ProbeCounters", "ProbeDetails", "read_answer", "read_bye", "read_dump_folder"]

_LONGEST_HEADER = 16 << 20


@dataclass(frozen=True, slots=True)
class ProbeBye:
    """What a rank wrote as it exited (Python's own exit; not a signal, not ``os._exit``).

    ``at`` is Unix time in seconds. ``exception`` is the type name of the uncaught exception; None: main ended
    by itself or by ``sys.exit``. ``stack``: where it was raised, innermost first.
    """

    details: ProbeDetails
    at: float
    exception: str | None = None
    stack: Stack = ()


class ProbeClient:
    """A connection to one rank's probe, kept open and made anew when it breaks. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        """``path`` of the socket; nothing is opened yet."""
        self._path = path
        self._socket: socket.socket | None = None

    def counters(self, deadline_s: float) -> ProbeCounters | None:
        """Ask for the counters; None if no sound answer came within ``deadline_s`` seconds."""
        answer = self._ask("counters", deadline_s)
        if isinstance(answer, Unavailable):
            return None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return probe_answers.counters(*answer)
        self.close()
        return None

    def details(self, deadline_s: float, *, attributes: bool = True) -> ProbeDetails | Unavailable:
        """Ask for everything, or all but the values of attributes, within ``deadline_s`` seconds."""
        answer = self._ask("details" if attributes else "history", deadline_s)
        if isinstance(answer, Unavailable):
            return answer
        try:
            return probe_answers.details(*answer)
        except (ValueError, TypeError, IndexError, RecursionError) as error:
            self.close()
            return _no_answer(f"its answer makes no sense ({type(error).__name__})")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, question: str, deadline_s: float) -> tuple[dict[str, Any], bytes] | Unavailable:
        deadline = time.monotonic() + deadline_s
        try:
            if self._socket is not None:
                with contextlib.suppress(ConnectionError):  # broken since the last question: make a new one
                    return self._exchange(question, deadline)
                self.close()
            return self._exchange(question, deadline)
        except TimeoutError:
            self.close()  # a late answer must not be taken for the answer to the next question
            return _no_answer(f"it did not answer within {deadline_s:g} s")
        except (OSError, ValueError, RecursionError) as error:
            self.close()
            return _no_answer(str(error)[:200])

    def _exchange(self, question: str, deadline: float) -> tuple[dict[str, Any], bytes]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_left(deadline))
            self._socket.connect(str(self._path))
        connection = self._socket
        connection.settimeout(_left(deadline))
        connection.sendall(json.dumps({"q": question}).encode() + b"\n")
        received = bytearray()
        while (end := received.find(b"\n")) < 0:
            _receive(connection, received, deadline)
            if len(received) > _LONGEST_HEADER:
                raise ValueError("its answer has no end")
        header = _header(bytes(received[:end]))
        del received[: end + 1]
        size = header["bytes"]
        while len(received) < size:
            _receive(connection, received, deadline)
        if len(received) > size:
            raise ValueError("it says more than it announced")
        return header, bytes(received)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _receive(connection: socket.socket, received: bytearray, deadline: float) -> None:
    connection.settimeout(_left(deadline))
    piece = connection.recv(1 << 18)
    if not piece:
        raise ConnectionResetError("it hung up")
    received += piece


def _header(line: bytes) -> dict[str, Any]:
    header = json.loads(line)
    if not isinstance(header, dict) or header.get("protocol") != 1:
        raise ValueError("it speaks another protocol")
    size = header.get("bytes")
    if type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise ValueError("it announces an impossible size")
    return header


def _no_answer(why: str) -> Unavailable:
    return Unavailable(
        "journal",
        f"the rank's probe: {why}",
        "a rank whose GIL is held answers nothing; its stack and /proc still tell where it is",
    )


def read_bye(path: Path) -> ProbeBye | None:
    """The note ``<pid>.bye`` that a rank left; None if there is none or it is not whole."""
    try:
        header, body = _note(path)
        details = probe_answers.details(header, body)
        at = header.get("at")
        raised = probe_answers.stack(header.get("raised_at"))
        exception = header.get("exception")
    except (OSError, ValueError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(at, (int, float)):
        return None
    return ProbeBye(details, float(at), exception[:200] if isinstance(exception, str) else None, raised)


def read_introduction(path: Path) -> ProbeCounters | None:
    """The note ``<pid>.rank``: who the rank was when its probe began, without a count of anything; None as above."""
    try:
        return probe_answers.introduction(_note(path)[0])
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def read_answer(path: Path) -> ProbeDetails | Unavailable:
    """A long answer that was written to a file, by a rank that has no probe of its own."""
    try:
        return probe_answers.details(*_note(path))
    except (OSError, ValueError, TypeError, IndexError, RecursionError) as error:
        return _no_answer(f"its answer cannot be read ({clean(str(error), 200)})")


def _note(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and body of a note. The folder may belong to the job: no link is followed, no pipe waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_LONGEST_HEADER + MOST_BYTES)
    line, found, body = data.partition(b"\n")
    header = _header(line)
    if not found or len(body) != header["bytes"]:
        raise ValueError("it is cut short")
    return header, body
