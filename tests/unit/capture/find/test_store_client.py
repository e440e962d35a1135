"""Reading a store that may be none, and that may be wild."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.find.store_client import StoreContent, groups_of, key_names, peek, ranks_of
from hangdoc.model.network import ListeningPort
from hangdoc.model.snapshot import Unavailable

Answer = Callable[[bytes], bytes | None]
GREETING = 10


def address_of(port: int) -> bytes:
    """What gloo of torch 2.13 publishes, as far as anybody can rely on it: a sockaddr_in at byte 18."""
    sockaddr = struct.pack("=H", 2) + struct.pack("!H", port) + b"\x7f\0\0\1"
    return bytes([2, *[0] * 7]) + b"vm\x88" + bytes(7) + sockaddr + bytes(120)


def text(data: bytes) -> bytes:
    return struct.pack("=Q", len(data)) + data


def honest(values: dict[bytes, bytes]) -> Answer:
    def answer(question: bytes) -> bytes | None:
        if question[0] == 17:
            return struct.pack("=Q", len(values)) + b"".join(map(text, values))
        if question[0] == 3:
            return text(values[question[9:]])
        return None

    return answer


@contextmanager
def serving(answer: Answer, *, greet: bool = True, split: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """A server that notes what it is asked."""
    asked: list[bytes] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(10)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                first = connection.recv(GREETING)
                asked.append(first)
                connection.sendall(first[6:] if greet else b"HTTP")
                while question := connection.recv(4096):
                    asked.append(question)
                    data = answer(question)
                    if data is None:
                        return
                    for part in [data[index : index + 7] for index in range(0, len(data), 7)] if split else [data]:
                        connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join(5)


CONTENT = {
    b"/default_pg/0//cpu//0/0": address_of(5000),
    b"/default_pg/0//cpu//0/1": address_of(5001),
    b"/default_pg/0//7//cpu//0/0": address_of(6001),
    b"init/": b"2",
    b"/mine": b"a secret",
}
PORTS = [ListeningPort(pid, "127.0.0.1", port) for pid, port in ((11, 5000), (12, 5001), (12, 6001))]


@pytest.mark.parametrize("split", [False, True])
def test_ranks_and_groups(split: bool) -> None:
    with serving(honest(CONTENT), split=split) as (port, asked):
        content = peek("127.0.0.1", port)
    assert isinstance(content, StoreContent)
    assert content.keys == tuple(sorted(key.decode() for key in CONTENT))
    ranks = ranks_of(content, PORTS)
    assert ranks == {11: 0, 12: 1}
    assert [(group.name, group.members) for group in groups_of(content, PORTS, ranks)] == [("0", (0, 1)), ("7", (1,))]
    # Nothing but a handshake, the list and values of gloo's own keys was ever asked for.
    assert asked[0][:5] == b"\0\xce\xf7\x85\x3c"
    assert {question[0] for question in asked[1:]} == {17, 3}
    assert not any(b"/mine" in question or b"init" in question for question in asked)


def test_names_alone_are_asked_without_any_value() -> None:
    with serving(honest(CONTENT)) as (port, asked):
        names = key_names("127.0.0.1", port)
    assert isinstance(names, list)
    assert sorted(names) == sorted(key.decode() for key in CONTENT)
    assert {question[0] for question in asked[1:]} == {17}


def test_groups_with_members_elsewhere_are_left_out() -> None:
    with serving(honest(CONTENT)) as (port, _):
        content = peek("127.0.0.1", port)
    assert isinstance(content, StoreContent)
    assert groups_of(content, PORTS[:1], {11: 0}) == ()
    assert ranks_of(content, PORTS[:1]) == {11: 0}


def test_a_restarts_prefix_and_nccl() -> None:
    keys = {b"/worker/attempt_0/default_pg/0//cpu//0/3": address_of(5000), b"/default_pg/0//cuda//cuda:0": b"x"}
    with serving(honest(keys)) as (port, _):
        content = peek("127.0.0.1", port)
    assert isinstance(content, StoreContent)
    assert ranks_of(content, PORTS) == {11: 3}


def refused(answer: Answer, *, greet: bool = True, seconds: float = 0.5) -> str:
    with serving(answer, greet=greet) as (port, _):
        began = time.monotonic()
        found = peek("127.0.0.1", port, seconds=seconds)
        assert time.monotonic() - began < seconds + 1
    assert isinstance(found, Unavailable)
    assert found.what == "store"
    return found.why


def test_what_is_no_store() -> None:
    assert "it is no TCPStore" in refused(honest({}), greet=False)
    assert "closed" in refused(lambda question: None)
    assert "holds 18446744073709551615 keys" in refused(lambda question: b"\xff" * 8)
    assert "entry of" in refused(lambda question: struct.pack("=QQ", 1, 1 << 40))
    assert "no answer in time" in refused(lambda question: b"", seconds=0.2)


def test_nobody_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        found = peek("127.0.0.1", reserved.getsockname()[1])
    assert isinstance(found, Unavailable)
    assert "refused" in found.why


@given(st.binary(max_size=200))
def test_any_published_address(value: bytes) -> None:
    content = StoreContent((), {"": {0: (5000,)}})
    assert ranks_of(content, PORTS) == {11: 0}
    from hangdoc.capture.find.store_client import _ports_in

    assert all(0 < port < 65536 for port in _ports_in(value))
