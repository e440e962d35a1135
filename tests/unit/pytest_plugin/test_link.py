"""Messages between the tests and the helper."""

from __future__ import annotations

import socket
import time

import pytest

from hangdoc.pytest_plugin import link as module
from hangdoc.pytest_plugin.link import Link


@pytest.fixture
def pair() -> tuple[Link, socket.socket]:
    ours, theirs = socket.socketpair()
    return Link(ours), theirs


def test_messages_come_whole_and_in_order(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    other = Link(theirs)
    assert other.receive() == []
    assert all(other.send(number=number, text="✖ \n" * 1000) for number in range(3))
    found = link.receive(1.0)
    while len(found) < 3:
        found += link.receive(1.0)
    assert [(message["number"], len(message["text"])) for message in found] == [(0, 3000), (1, 3000), (2, 3000)]


@pytest.mark.parametrize("data", [b"no json\n", b"[1]\n", b"\xff\n", b'"text"\n', b"{}\n"])
def test_what_is_no_message_is_left_out(pair: tuple[Link, socket.socket], data: bytes) -> None:
    link, theirs = pair
    theirs.sendall(data + b'{"a": 1}\n{"half')
    assert link.receive(1.0) == [{"a": 1}]
    assert not link.closed


def test_the_end_of_the_other_side_is_noticed(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    theirs.sendall(b'{"last": 1}\n')
    theirs.close()
    assert link.receive(1.0) == [{"last": 1}]
    assert link.closed
    assert not link.send(a=1)
    assert link.receive(5.0) == []
    link.close()
    assert link.receive(5.0) == []


def test_one_that_never_ends_its_line_is_given_up(pair: tuple[Link, socket.socket]) -> None:
    link, theirs = pair
    theirs.setblocking(False)
    deadline = time.monotonic() + 20
    while not link.closed and time.monotonic() < deadline:
        try:
            theirs.send(b"x" * 65536)
        except BlockingIOError:
            link.receive()
    assert link.closed


def test_one_that_takes_nothing_delays_nobody_for_long(
    pair: tuple[Link, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, theirs = pair
    monkeypatch.setattr(module, "_SEND_SECONDS", 0.2)
    began = time.monotonic()
    while link.send(text="x" * 10000):
        pass
    assert link.closed
    assert time.monotonic() - began < 10
    theirs.close()
