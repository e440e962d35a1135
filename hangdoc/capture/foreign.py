"""What other programs leave for us, read as an enemy's: plain files only, of the right owner, of bounded size."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_plain(
    path: str | os.PathLike[str],
    limit: int,
    *,
    owners: Collection[int] | None = None,
    folder: int | None = None,
    follow: bool = False,
) -> bytes:
    """The whole of a regular file that belongs to one of ``owners`` (None: to anybody).

    ``folder``: a descriptor that ``path`` is relative to. A link is followed only with ``follow``, never to anything
    but a regular file: a pipe would hang us, a device may act when it is opened. Raises ``ValueError`` for what is not
    to be read, ``OSError`` for what cannot be.
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
