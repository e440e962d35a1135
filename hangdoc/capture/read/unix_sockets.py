"""The other ends of AF_UNIX sockets, which /proc/net/unix does not show: sock_diag(7), as ``ss -x`` asks it.

The kernel answers without privilege, for the sockets of hangdoc's own network namespace.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

# linux/netlink.h, linux/sock_diag.h, linux/unix_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_ERROR, _DONE = 2, 3
_REQUEST_AND_DUMP = 0x1 | 0x300
_SHOW_PEER = 4
_PEER = 2
_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, number, port."""
_QUESTION = struct.Struct("=BBHIIIII")
"""Family, protocol, padding, states, inode, what to show, two words of a cookie."""
_SOCKET = struct.Struct("=BBBBIII")
"""Family, type, state, padding, inode, two words of a cookie."""
_ATTRIBUTE = struct.Struct("=HH")
"""Length, type."""
_ALL = 0xFFFFFFFF
_BUFFER = 1 << 16
_MOST_SOCKETS = 200_000
"""Judgement: a busy desktop has some thousand."""


def unix_peers(*, deadline: float = 0.25) -> dict[int, int]:
    """Inode of each connected AF_UNIX socket → inode of its other end.

    {} where the kernel does not answer within ``deadline`` seconds. Example: ``socketpair()`` of sockets 77 and 78 →
    {77: 78, 78: 77}.
    """
    until = time.monotonic() + deadline
    question = _QUESTION.pack(socket.AF_UNIX, 0, 0, _ALL, 0, _SHOW_PEER, _ALL, _ALL)
    found: dict[int, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
            size = _HEADER.size + len(question)
            kernel.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_AND_DUMP, 1, 0) + question)
            while (left := until - time.monotonic()) > 0 and len(found) < _MOST_SOCKETS:
                kernel.settimeout(left)
                last = False
                for kind, body in _messages(kernel.recv(_BUFFER)):
                    last = last or kind in (_ERROR, _DONE)
                    found.update(_pair(body) if kind == _SOCK_DIAG_BY_FAMILY else ())
                if last:
                    break
    except (OSError, struct.error):
        return found
    return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of each netlink message."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += _aligned(length)


def _pair(body: bytes) -> list[tuple[int, int]]:
    """[(inode, the peer's)] of one socket; [] of one without a peer."""
    if len(body) < _SOCKET.size:
        return []
    inode = _SOCKET.unpack_from(body)[4]
    at = _SOCKET.size
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        value = body[at + _ATTRIBUTE.size : at + length]
        if kind == _PEER and len(value) == 4:
            return [(inode, struct.unpack("=I", value)[0])]
        at += _aligned(length)
    return []


def _aligned(length: int) -> int:
    return (length + 3) & ~3
