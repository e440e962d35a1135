"""Text that comes from the job is hostile: control characters are escaped, and every read has a limit."""

from __future__ import annotations

import os


def clean(text: str, limit: int = 4096) -> str:
    """``text`` on one line: control and other unprintable characters escaped, cut at ``limit`` characters."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def read_bytes(path: str, limit: int = 1 << 20) -> bytes | None:
    """Up to ``limit`` bytes of a file under /proc; None if it is gone, unreadable or refuses."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        chunks: list[bytes] = []
        while limit > 0:
            chunk = os.read(fd, min(limit, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: str, limit: int = 1 << 20) -> str | None:
    """As ``read_bytes``, decoded; bytes that are no UTF-8 are shown as escapes."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "backslashreplace")


def read_link(path: str) -> str | None:
    """Target of a symbolic link under /proc; None if it is gone or unreadable."""
    try:
        return os.readlink(os.fsencode(path)).decode("utf-8", "backslashreplace")  # noqa: PTH115 - as bytes
    except OSError:
        return None
