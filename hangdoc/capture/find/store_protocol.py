"""The protocol of torch's TCPStore, as a client that asks for nothing that waits.

Seen in torch 2.9 to 2.13 (TCPStore.cpp, TCPStoreBackend.hpp): u8 question, u64 lengths, in the machine's byte order.
Before the first question a client validates itself and pings; a server that does not answer that is left alone. torch's
own clients put '/' before every key: a key without it is no key of theirs. No torch is imported: that alone would take
two seconds.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Sequence

_VALIDATE, _SET, _COMPARE_SET, _GET, _ADD, _CHECK, _DELETE_KEY, _MULTI_GET, _PING, _LIST_KEYS = (
    0,
    1,
    2,
    3,
    4,
    5,
    8,
    10,
    13,
    17,
)
_MAGIC = 0x3C85F7CE
_READY = 0
LARGEST_VALUE = 4 << 20
"""Bytes of a value that we send or take. The store drops a connection that sends 8 MiB (torch 2.13)."""
_PIECE = 1 << 16


class StoreConnection:
    """One connection to a store. Each question has a deadline: ``seconds``, or what ``until`` leaves of them.

    All methods raise ``OSError`` (``TimeoutError``, ``StoreClosedError``) or ``ValueError`` for a server that does not
    keep to the protocol; the connection is of no use then. Not for several threads at once.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        seconds: float,
        largest_value: int = LARGEST_VALUE,
        most_bytes: int | None = None,
    ) -> None:
        """Connect and greet. ``most_bytes``: of all answers together; None: any number."""
        self._seconds = seconds
        self._until: float | None = None
        self._largest = largest_value
        self._left = most_bytes
        self._received = bytearray()
        self._connection = socket.create_connection((address, port), timeout=seconds)
        try:
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def end_at(self, until: float) -> None:
        """All questions together must be answered ``until`` then (of time.monotonic)."""
        self._until = until

    def keys(self, most: int) -> list[bytes]:
        """All keys, ``most`` at most, without asking for any value. Stores of torch before 2.9 do not answer."""
        until = self._send(bytes([_LIST_KEYS]))
        count = self._number(until)
        if count > most:
            raise ValueError(f"it holds {count} keys")
        return [self._text(until) for _ in range(count)]

    def has(self, *keys: bytes) -> bool:
        """True if all of these keys are there."""
        until = self._send(struct.pack("=BQ", _CHECK, len(keys)) + b"".join(map(_packed, keys)))
        return self._take(1, until)[0] == _READY

    def value(self, key: bytes) -> bytes:
        """The value of a key that is there (``has``): for another one a store may close the connection."""
        return self._text(self._send(bytes([_GET]) + _packed(key)))

    def values(self, keys: Sequence[bytes], *, largest: int | None = None) -> list[bytes]:
        """The values of keys that are there. ``largest``: bytes of one that is kept; b"" stands for a larger one."""
        until = self._send(struct.pack("=BQ", _MULTI_GET, len(keys)) + b"".join(map(_packed, keys)))
        return [self._text(until, largest) for _ in keys]

    def set(self, key: bytes, value: bytes) -> None:
        """Set the key. The store does not answer; a question that it answers shows that it took the value."""
        if len(value) > LARGEST_VALUE:
            raise ValueError(f"a value of {len(value)} bytes")
        self._send(bytes([_SET]) + _packed(key) + _packed(value))

    def compare_set(self, key: bytes, expected: bytes, value: bytes) -> bytes:
        """Set the key if its value is ``expected``, or if that is empty and there is no such key; the value since."""
        if len(value) > LARGEST_VALUE:
            raise ValueError(f"a value of {len(value)} bytes")
        return self._text(self._send(bytes([_COMPARE_SET]) + _packed(key) + _packed(expected) + _packed(value)))

    def add(self, key: bytes, number: int) -> int:
        """Add to the number that is the key's value, 0 at first; the sum."""
        until = self._send(bytes([_ADD]) + _packed(key) + struct.pack("=q", number))
        return int(struct.unpack("=q", self._take(8, until))[0])

    def delete(self, key: bytes) -> bool:
        """Delete the key; whether it was there."""
        return self._number(self._send(bytes([_DELETE_KEY]) + _packed(key))) > 0

    def _greet(self) -> None:
        """Validate and ping, as torch's client does before anything else."""
        token = secrets.randbits(31)
        until = self._send(struct.pack("=BIBI", _VALIDATE, _MAGIC, _PING, token))
        if struct.unpack("=I", self._take(4, until))[0] != token:
            raise ValueError("it is no TCPStore")

    def _send(self, data: bytes) -> float:
        """Send a question; when its answer is due."""
        until = time.monotonic() + self._seconds
        until = until if self._until is None else min(until, self._until)
        self._connection.settimeout(max(0.001, until - time.monotonic()))
        self._connection.sendall(data)
        return until

    def _number(self, until: float) -> int:
        return int(struct.unpack("=Q", self._take(8, until))[0])

    def _text(self, until: float, largest: int | None = None) -> bytes:
        length = self._number(until)
        if length > self._largest:
            raise ValueError(f"an entry of {length} bytes")
        if largest is not None and length > largest:
            for start in range(0, length, _PIECE):
                self._take(min(_PIECE, length - start), until)
            return b""
        return self._take(length, until)

    def _take(self, count: int, until: float) -> bytes:
        while len(self._received) < count:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            data = self._connection.recv(_PIECE)
            if not data:
                raise StoreClosedError
            if self._left is not None:
                self._left -= len(data)
                if self._left < 0:
                    raise ValueError("too large")
            self._received += data
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


class StoreClosedError(EOFError, OSError):
    """The store closed the connection."""

    def __init__(self) -> None:
        super().__init__("it closed the connection")


def _packed(data: bytes) -> bytes:
    return struct.pack("=Q", len(data)) + data
