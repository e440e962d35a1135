"""Hostile input: plain files of the right owner only, JSON and memory within limits."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Collection
from typing import Any

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_plain(
    path: str | os.PathLike[str],
    limit: int,
    *,
    owners: Collection[int] | None = None,
    folder: int | None = None,
    follow: bool = False,
) -> bytes:
    """The whole contents of a regular file that one of ``owners`` owns (None: any user).

    ``folder``: a descriptor that ``path`` is relative to. A link is followed only with ``follow``, and only to a
    regular file: a pipe would hang us, and a device may act when it is opened. Raises ``ValueError`` if the file must
    not be read, ``OSError`` if it cannot be.
    """
    if follow and not stat.S_ISREG(os.stat(path, dir_fd=folder).st_mode):
        raise ValueError("it is no regular file")
    try:
        descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("it is a link") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        if owners is not None and status.st_uid not in owners:
            raise ValueError(f"it belongs to user {status.st_uid}")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit} bytes")
    return data


_MOST_OBJECTS = 256 << 20
"""Bytes that the objects of one JSON text may take, estimated: a fourth of what a capture may use. Judgement."""
_limited = False


def parse_json(text: bytes) -> Any:
    """``json.loads``, unless the objects would take too much memory. Raises ``ValueError`` and ``RecursionError``.

    ``[[],[],…`` takes 21 times its length. The weights are sizes in CPython 3.10 on 64 bits, rounded up: a list takes
    56 bytes and a place in its parent, a dict with one key 232 bytes. Counting costs a hundredth of the parsing.
    """
    estimate = len(text) + 64 * text.count(b",") + 72 * text.count(b"[") + 240 * text.count(b"{")
    if estimate > _MOST_OBJECTS:
        raise ValueError(f"it may take {estimate >> 20} MiB, more than {_MOST_OBJECTS >> 20}")
    return json.loads(text)


def limit_memory(most: int) -> None:
    """Limit this process to ``most`` bytes of address space from now on; it may then read pickles itself."""
    global _limited  # noqa: PLW0603
    lower_limit(resource.RLIMIT_AS, most)
    lower_limit(resource.RLIMIT_CORE, 0)
    _limited = True


def memory_is_limited() -> bool:
    """True if this process has called ``limit_memory``."""
    return _limited


def lower_limit(limit: int, value: int) -> None:
    """Set both sides of a resource limit to ``value``, or to the present hard limit if that is lower."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))
