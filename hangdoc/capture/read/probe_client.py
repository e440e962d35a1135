"""Ask a rank's probe, over its unix socket, and read the note that it left at exit, within limits of time and size.

A probe may be silent (the GIL is held), gone, or not a probe at all: every answer is checked, and one that does not
fit counts as none.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hangdoc.capture.read import probe_answers, procfs
from hangdoc.capture.read.flight_recorder import MOST_BYTES
from hangdoc.capture.read.probe_answers import ProbeCounters, ProbeDetails
from hangdoc.capture.safe.foreign import parse_json, read_plain
from hangdoc.capture.safe.text import clean
from hangdoc.model.process import ProcessExit, Raised, Stack
from hangdoc.model.snapshot import Unavailable

__all__ = ["ProbeBye", "ProbeClient", "ProbeCounters", "ProbeDetails", "parse_answer", "read_bye"]

_LONGEST_HEADER = 16 << 20
"""Bytes of the first line of a long answer: stacks, groups and attributes. Judgement: far more than a probe keeps."""
_LONGEST_SHORT = 4 << 20
"""Bytes of the counters of some ten thousand groups; they are asked for every second. Judgement."""
LONGEST_ANSWER = _LONGEST_HEADER + MOST_BYTES


@dataclass(frozen=True, slots=True)
class ProbeBye:
    """What a rank wrote as it exited (Python's own exit; not a signal, not ``os._exit``).

    ``at`` is Unix time in seconds. ``exception`` is the type name of the uncaught exception; None: main ended
    by itself or by ``sys.exit``. ``stack``: where it was raised, innermost first. ``message``: its own text.
    """

    details: ProbeDetails
    at: float
    exception: str | None = None
    stack: Stack = ()
    message: str = ""
    raised_from: tuple[Raised, ...] = ()

    def of(self, ended: ProcessExit) -> ProcessExit:
        """``ended`` with the exception that the note tells of; unchanged if it tells of none."""
        if self.exception is None:
            return ended
        return replace(
            ended,
            exception=self.exception,
            stack=self.stack,
            message=self.message,
            raised_from=self.raised_from,
        )


class ProbeClient:
    """A connection to one rank's probe, kept open and opened again when it breaks. For one thread at a time."""

    def __init__(self, path: Path, pid: int | None = None) -> None:
        """Remember ``path``, the socket; nothing is opened yet.

        ``pid`` is the rank's: only a process of its user may answer. Without it only our own user or root may.
        """
        self._path = path
        self._pid = pid
        self._socket: socket.socket | None = None

    def counters(self, deadline_s: float) -> ProbeCounters | None:
        """Ask for the counters; None if no valid answer came within ``deadline_s`` seconds."""
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
            return _no_answer(f"its answer has the wrong form ({type(error).__name__})")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, question: str, deadline_s: float) -> tuple[dict[str, Any], bytes] | Unavailable:
        """(header, body) of the answer. A connection that broke since the last question is opened again, once."""
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
        """(header, body) of the answer. Raises OSError (TimeoutError at ``deadline``), ValueError, RecursionError."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_left(deadline))
            self._socket.connect(str(self._path))
            self._check_owner(self._socket)
        connection = self._socket
        connection.settimeout(_left(deadline))
        connection.sendall(json.dumps({"q": question}).encode() + b"\n")
        short = question == "counters"
        received, seen = bytearray(), 0
        while (end := received.find(b"\n", seen)) < 0:
            seen = len(received)
            _receive(connection, received, deadline)
            if len(received) > (_LONGEST_SHORT if short else _LONGEST_HEADER):
                raise ValueError("the first line of its answer is too long")
        header = _header(bytes(received[:end]))
        del received[: end + 1]
        size = header["bytes"]
        if short and size > _LONGEST_SHORT:
            raise ValueError("it announces more bytes than an answer may have")
        while len(received) < size:
            _receive(connection, received, deadline)
        if len(received) > size:
            raise ValueError("its answer is longer than it announced")
        return header, bytes(received)

    def _check_owner(self, connection: socket.socket) -> None:
        """Raise ValueError if another user answers: the job names the folder, and any process may listen there."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        user = struct.unpack("3i", credentials)[1]
        users = procfs.users(self._pid) if self._pid is not None else {0, os.geteuid()}
        if user not in users:
            raise ValueError(f"user {user} answers in its place")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _receive(connection: socket.socket, received: bytearray, deadline: float) -> None:
    connection.settimeout(_left(deadline))
    piece = connection.recv(1 << 18)
    if not piece:
        raise ConnectionResetError("it closed the connection")
    received += piece


def _header(line: bytes) -> dict[str, Any]:
    header = parse_json(line)
    if not isinstance(header, dict) or header.get("protocol") != 1:
        raise ValueError("it uses another protocol (another version of hangdoc's probe, or no probe)")
    size = header.get("bytes")
    if type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise ValueError("it announces more bytes than an answer may have")
    return header


def _no_answer(why: str) -> Unavailable:
    return Unavailable(
        "journal",
        f"the rank's probe: {why}",
        "a rank whose GIL is held answers nothing; its stack and /proc still show where it is",
    )


def read_bye(path: Path, *, history: bool = True) -> ProbeBye | None:
    """The note ``<pid>.bye`` that a rank left; None if there is none or it is not whole.

    Without ``history`` the recorders' part, which takes longest to read, is left out.
    """
    try:
        header, body = _read_note(path)
        if not history:
            header, body = header | {"parts": []}, b""
        details = probe_answers.details(header, body)
        at = header.get("at")
        raised = probe_answers.stack(header.get("raised_at"))
        exception = header.get("exception")
    except (OSError, ValueError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(at, (int, float)):
        return None
    message = probe_answers.message(header.get("message"))
    name = exception[:200] if isinstance(exception, str) else None
    return ProbeBye(details, float(at), name, raised, message, probe_answers.raised_from(header.get("raised_from")))


def read_introduction(path: Path) -> ProbeCounters | None:
    """The note ``<pid>.rank``: who the rank was when its probe began, without a count of anything; None as above."""
    try:
        return probe_answers.introduction(_read_note(path)[0])
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def parse_answer(data: bytes) -> ProbeDetails | Unavailable:
    """A long answer that a rank without a probe of its own has written to a file."""
    try:
        return probe_answers.details(*_note(data))
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        return _no_answer(f"its answer cannot be read ({clean(str(error), 200)})")


def _read_note(path: Path) -> tuple[dict[str, Any], bytes]:
    """(header, body) of a note in our own folder. A file that another user put there is refused."""
    return _note(read_plain(path, LONGEST_ANSWER, owners={0, os.geteuid()}))


def _note(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(header, body) of a whole note. Raises ValueError."""
    line, found, body = data.partition(b"\n")
    header = _header(line)
    if not found or len(body) != header["bytes"]:
        raise ValueError("it is cut short")
    return header, body
