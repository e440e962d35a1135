"""Ask a rank's probe, over its unix socket; read the note it left at exit. Bounded in time and size.

A probe may be silent (the GIL is held), gone, or not a probe at all: every answer is checked, and whatever
does not fit is no answer.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangdoc.capture import flight_recorder
from hangdoc.capture.flight_recorder import MOST_BYTES, StackTable, read_dump_folder
from hangdoc.model.journal import Attribute, Journal, PointToPoint, ProcessGroup, StoreWait
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

__all__ = ["ProbeBye", "ProbeClient", "ProbeCounters", "ProbeDetails", "read_bye", "read_dump_folder"]

_LONGEST_HEADER = 16 << 20
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class ProbeCounters:
    """The cheap facts about a rank.

    ``groups`` maps the recorder's number of a group (mostly its name) to the last enqueued and last completed
    operation; completed is -1 where only a backend's own count was to be had. ``in_store``: the main thread
    is inside a store call or a constructor of a store or backend.
    """

    pid: int
    rank: int | None
    world_size: int | None
    local_rank: int | None
    restart: int
    groups: dict[str, tuple[int, int]]
    group_count: int
    initialized: bool
    point_to_points: int
    store_calls: int
    in_store: bool


@dataclass(frozen=True, slots=True)
class ProbeDetails:
    """The long answer. ``unavailable``: what of it could not be had."""

    counters: ProbeCounters
    journal: Journal
    first_store: Stack = ()
    """Where the rank made its first store or group."""
    python: str = ""
    torch: str = ""
    cwd: str = ""
    library_roots: tuple[str, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()


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
            return _counters(*answer)
        self.close()
        return None

    def details(self, deadline_s: float) -> ProbeDetails | Unavailable:
        """Ask for everything, within ``deadline_s`` seconds."""
        answer = self._ask("details", deadline_s)
        if isinstance(answer, Unavailable):
            return answer
        try:
            return _details(*answer)
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
        with path.open("rb") as file:
            data = file.read(_LONGEST_HEADER + MOST_BYTES)
        line, found, body = data.partition(b"\n")
        header = _header(line)
        if not found or len(body) != header["bytes"]:
            return None
        details = _details(header, body)
        at = header.get("at")
        raised = tuple(_frame(frame) for frame in _rows(header.get("raised_at"), 3))
        exception = header.get("exception")
    except (OSError, ValueError, TypeError, IndexError, RecursionError):
        return None
    if not isinstance(at, (int, float)):
        return None
    return ProbeBye(details, float(at), _text(exception) if isinstance(exception, str) else None, raised)


# Answers into facts


def _counters(header: dict[str, Any], body: bytes) -> ProbeCounters:
    recorded: Any = json.loads(body) if body else {}
    if not isinstance(recorded, dict):
        raise TypeError("its counters are no object")
    status = recorded.get("pg_status")
    groups = {name: (enqueued, completed) for name, enqueued, completed in flight_recorder.counters(status, {})}
    sequences = header.get("sequences")
    if not groups and isinstance(sequences, dict):
        groups = {_text(name): (_whole(count), -1) for name, count in sequences.items()}
    return _plain_counters(header, groups)


def _plain_counters(header: dict[str, Any], groups: dict[str, tuple[int, int]]) -> ProbeCounters:
    return ProbeCounters(
        pid=_whole(header.get("pid")),
        rank=_maybe(header.get("rank")),
        world_size=_maybe(header.get("world_size")),
        local_rank=_maybe(header.get("local_rank")),
        restart=_maybe(header.get("restart")) or 0,
        groups=groups,
        group_count=_maybe(header.get("groups")) or 0,
        initialized=header.get("initialized") is True,
        point_to_points=_maybe(header.get("point_to_points")) or 0,
        store_calls=_maybe(header.get("store_calls")) or 0,
        in_store=header.get("in_store") is True,
    )


def _details(header: dict[str, Any], body: bytes) -> ProbeDetails:
    table = StackTable.new()
    stacks = [tuple(_frame(frame) for frame in _rows(stack, 3)) for stack in _list(header.get("stacks"))]
    indices = [table.add(stack) for stack in stacks]

    def stack_index(number: Any) -> int:
        number = _whole(number)
        return indices[number] if 0 <= number < len(indices) else -1

    groups = tuple(
        ProcessGroup(_text(name), tuple(_whole(r) for r in _list(ranks)), _text(desc), _text(backend), stack_index(at))
        for name, ranks, desc, backend, at in _rows(header.get("group_table"), 5)
    )
    point_to_points = tuple(
        PointToPoint(
            group=_text(group),
            op_id=_whole(op_id),
            op=_text(op),
            peer=_whole(peer),
            tag=_whole(tag),
            stack=stack_index(stack),
            created_ns=_whole(at),
            completed=completed is True,
            thread_id=_whole(thread),
        )
        for op, group, op_id, peer, tag, stack, at, completed, thread in _rows(header.get("point_to_point_calls"), 9)
    )
    store_waits = tuple(
        StoreWait(
            _text(op),
            tuple(_text(key) for key in _list(keys)),
            stack_index(stack),
            _whole(since),
            _whole(thread),
        )
        for op, keys, stack, since, thread in _rows(header.get("store_wait_calls"), 5)
    )
    attributes = tuple(
        Attribute(_text(file), _whole(line), _text(function), _text(name), _text(value))
        for file, line, function, name, value in _rows(header.get("attributes"), 5)
    )
    recorded = _recorded(header, body, table, groups)
    unavailable: tuple[Unavailable, ...] = ()
    if isinstance(recorded, Unavailable):
        unavailable = (recorded,)
        recorded = flight_recorder.Recorded((), (), (), ())
    journal = Journal(
        source="probe",
        groups=groups,
        calls=recorded.calls,
        point_to_points=_merged(point_to_points, recorded.point_to_points),
        store_waits=store_waits,
        stacks=tuple(table.stacks),
        attributes=attributes,
        counters=recorded.counters,
    )
    return ProbeDetails(
        counters=_plain_counters(header, {name: (enq, done) for name, enq, done in recorded.counters}),
        journal=journal,
        first_store=stacks[first] if 0 <= (first := _whole(header.get("first_store"))) < len(stacks) else (),
        python=_text(header.get("python")),
        torch=_text(header.get("torch")),
        cwd=_text(header.get("cwd")),
        library_roots=tuple(_text(root) for root in _list(header.get("library_roots"))),
        unavailable=unavailable,
    )


def _recorded(
    header: dict[str, Any], body: bytes, table: StackTable, groups: tuple[ProcessGroup, ...]
) -> flight_recorder.Recorded | Unavailable:
    if not body:
        failure = _text(header.get("recorder_says")) or "it was left out"
        return Unavailable(
            "journal",
            f"torch {_text(header.get('torch'))}'s flight recorder gave no history ({failure})",
            "torch 2.8 or newer keeps one for gloo, 2.5 or newer for nccl",
        )
    # The socket's owner is our own user, and the probe copies what torch itself wrote.
    dump = flight_recorder.unpickle(body, foreign=False)
    return dump if isinstance(dump, Unavailable) else flight_recorder.parse(dump, table, groups)


def _merged(probed: tuple[PointToPoint, ...], recorded: tuple[PointToPoint, ...]) -> tuple[PointToPoint, ...]:
    """Where the recorder has a group's point-to-point calls (nccl), its word counts: it knows their end."""
    known = {call.group for call in recorded}
    kept = [call for call in probed if call.group not in known or call.op == "monitored_barrier"]
    return tuple(sorted([*recorded, *kept], key=lambda call: call.created_ns))


def _frame(row: list[Any]) -> Frame:
    return Frame(_text(row[0]), _whole(row[1]), _text(row[2]))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any, width: int) -> list[list[Any]]:
    return [row for row in _list(value) if isinstance(row, list) and len(row) == width]


def _text(value: Any) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    return value if type(value) is int and abs(value) < 1 << 64 else -1


def _maybe(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 64 else None
