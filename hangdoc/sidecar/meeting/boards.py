"""Where watches leave what they write to each other: a TCPStore, or a shared folder. Every value is sealed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Protocol

from hangdoc.capture.find.store_protocol import LARGEST_VALUE, StoreConnection
from hangdoc.sidecar.meeting.own_folder import OwnFolder
from hangdoc.sidecar.meeting.records import LARGEST_RECORD, opened, sealed

MOST_MEMBERS = 16_384
"""Watches of one job that the lead listens to. Judgement."""
_MEMBER = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_SECONDS = 2.0
"""For one question to the store: it answers within a millisecond (measured). Judgement."""
_SEAL_BYTES = 32
_AT_ONCE = 256
"""Values that are asked for with one question. Judgement."""
_MOST_TOGETHER = 16 << 20
"""Bytes of all records that are taken at once: 16,000 beats of 400 bytes are 6 MB. Judgement."""
_LARGEST_NAME = 80 + _SEAL_BYTES
_NEW_SECONDS = 1.0
"""In one look, for the names of watches that have come: those of a thousand take 0.1 s. Judgement."""
_LASTING = "lead"
"""The name of a value that is never removed while a meeting lasts."""
PART = LARGEST_VALUE - _SEAL_BYTES
"""Bytes of a payload."""


class Board(Protocol):
    """Named values that all watches of a job can read and write. All methods raise ``OSError`` and ``ValueError``."""

    def put(self, name: str, payload: bytes) -> None:
        """Leave a value, instead of an older one of that name."""

    def get(self, name: str) -> bytes | None:
        """The value of that name; None if there is none. ``ValueError`` if no watch of this job left it."""

    def get_all(self, names: Sequence[str]) -> Sequence[bytes | None]:
        """The values of names that have been left, all at once; None for one that no watch of this job left."""

    def drop(self, name: str) -> None:
        """Remove the value, if it is there."""

    def enroll(self, member: str) -> None:
        """Add a name to ``members``."""

    def members(self) -> Sequence[str]:
        """All that have enrolled."""

    def close(self) -> None:
        """Let go of it."""


class StoreBoard:
    """A TCPStore. It has no list of names that a large job could afford to ask for: members are numbered."""

    def __init__(self, address: str, port: int, key: bytes) -> None:
        self._key = key
        self._connection = StoreConnection(address, port, seconds=_SECONDS)
        self._known: list[str] = []
        self._lasts = False
        """``_LASTING`` has been there."""
        self._enrolled = False

    def put(self, name: str, payload: bytes) -> None:
        """See ``Board``. A large value, for which a store may close the connection, is checked: the next one would not
        arrive. Whether a record has come the next question shows, or the silence of whoever left it."""
        self._connection.set(_stored(name), sealed(self._key, name, payload))
        if len(payload) > LARGEST_RECORD and not self._connection.has(_stored(name)):
            raise ValueError(f"the store does not keep {name}")

    def get(self, name: str) -> bytes | None:
        """See ``Board``. What stays where it is, and all watches ask for again and again, costs one question; a store
        that has lost it answers with nothing, or ends the connection."""
        value = self._connection.value(_stored(name)) if name == _LASTING and self._lasts else b""
        if not value:
            if not self._connection.has(_stored(name)):
                return None
            value = self._connection.value(_stored(name))
        self._lasts |= name == _LASTING
        return opened(self._key, name, value)

    def get_all(self, names: Sequence[str]) -> Sequence[bytes | None]:
        """See ``Board``. Whoever reaches the store may write there: so only values as large as a record are taken, and
        no more of them than all watches have."""
        found = _Taken(self._key)
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            values = self._connection.values([_stored(name) for name in some], largest=LARGEST_RECORD + _SEAL_BYTES)
            for name, value in zip(some, values, strict=True):
                found.add(name, value)
        return found.values

    def drop(self, name: str) -> None:
        """See ``Board``."""
        self._connection.delete(_stored(name))
        self._lasts &= name != _LASTING

    def enroll(self, member: str) -> None:
        """See ``Board``."""
        if not self._enrolled:
            number = self._connection.add(_stored("count"), 1)
            if not 0 < number <= MOST_MEMBERS:
                raise ValueError(f"the meeting's store has counted {number} watches")
            self.put(f"member/{number}", member.encode())
            self._enrolled = True

    def members(self) -> Sequence[str]:
        """See ``Board``. A number whose name is missing or forged is left out. Those of whom there is no time to hear
        in one look, as somebody has filled the store, are heard of in the next."""
        count = min(self._connection.add(_stored("count"), 0), MOST_MEMBERS)
        until = time.monotonic() + _NEW_SECONDS
        while len(self._known) < count and time.monotonic() < until:
            name = f"member/{len(self._known) + 1}"
            if not self._connection.has(_stored(name)):
                break  # it is about to write its name
            (value,) = self._connection.values([_stored(name)], largest=_LARGEST_NAME)
            self._known.append(_member_in(_unless_forged(self._key, name, value)))
        return [member for member in dict.fromkeys(self._known) if member]

    def close(self) -> None:
        """See ``Board``."""
        self._connection.close()


class FolderBoard:
    """Files of a folder that all hosts share."""

    def __init__(self, folder: OwnFolder, key: bytes, *, leads: bool = False) -> None:
        """``leads``: the folder ends with this board, as a store does with its helper."""
        self._folder = folder
        self._key = key
        self._leads = leads

    def put(self, name: str, payload: bytes) -> None:
        """See ``Board``."""
        self._folder.put(_file(name), sealed(self._key, name, payload))

    def get(self, name: str) -> bytes | None:
        """See ``Board``."""
        value = self._folder.read(_file(name))
        return None if value is None else opened(self._key, name, value)

    def get_all(self, names: Sequence[str]) -> Sequence[bytes | None]:
        """See ``Board``."""
        found = _Taken(self._key)
        for name in names:
            try:
                value = self._folder.read(_file(name)) or b""
            except (OSError, ValueError):  # one forged value must not hide the others
                value = b""
            found.add(name, value if len(value) <= LARGEST_RECORD + _SEAL_BYTES else b"")
        return found.values

    def drop(self, name: str) -> None:
        """See ``Board``."""
        self._folder.drop(_file(name))

    def enroll(self, member: str) -> None:
        """See ``Board``."""
        self.put(f"member/{member}", member.encode())

    def members(self) -> Sequence[str]:
        """See ``Board``."""
        prefix = _file("member/")
        names = sorted(entry for entry in self._folder.names() if entry.startswith(prefix))
        found = [name.removeprefix(prefix) for name in names[:MOST_MEMBERS]]
        return [member for member in found if _MEMBER.fullmatch(member)]

    def close(self) -> None:
        """See ``Board``."""
        if self._leads:
            self._folder.remove()
        else:
            self._folder.close()


def put_parts(board: Board, name: str, data: bytes, most: int) -> bool:
    """Leave ``data`` in parts, and then their number; False if it would take more than ``most`` parts."""
    parts = [data[start : start + PART] for start in range(0, len(data), PART)] or [b""]
    if len(parts) > most:
        board.put(name, b"0")
        return False
    for number, part in enumerate(parts):
        board.put(f"{name}/{number}", part)
    board.put(name, str(len(parts)).encode())
    return True


def take_parts(board: Board, name: str, most: int) -> bytes | None:
    """What ``put_parts`` left, which is removed; None if it is not there yet. ``ValueError`` if it was too large."""
    said = board.get(name)
    if said is None:
        return None
    count = int(said) if said.isdigit() and len(said) < 4 else 0
    if not 1 <= count <= most:
        raise ValueError("it is too large")
    found = [board.get(f"{name}/{number}") for number in range(count)]
    for number in range(count):
        board.drop(f"{name}/{number}")
    board.drop(name)
    if any(part is None for part in found):
        raise ValueError("a part of it is missing")
    return b"".join(part for part in found if part is not None)


class _Taken:
    """The payloads of many values, None for one that is forged: all of them together are no more than watches write."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._room = _MOST_TOGETHER
        self.values: list[bytes | None] = []

    def add(self, name: str, value: bytes) -> None:
        """Take one more."""
        payload = _unless_forged(self._key, name, value)
        self._room -= len(payload or b"")
        self.values.append(payload if self._room >= 0 else None)


def _unless_forged(key: bytes, name: str, value: bytes) -> bytes | None:
    try:
        return opened(key, name, value)
    except ValueError:
        return None


def _member_in(name: bytes | None) -> str:
    """The name of a watch; '' for none."""
    text = (name or b"").decode("ascii", "replace")
    return text if _MEMBER.fullmatch(text) else ""


def _stored(name: str) -> bytes:
    return b"hangdoc/" + name.encode()


def _file(name: str) -> str:
    return name.replace("/", "__")
