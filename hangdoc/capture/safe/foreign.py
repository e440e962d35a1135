"""What a job says or leaves behind, read as an enemy's: plain files of the right owner, and memory with a limit."""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import pickle
import resource
import stat
import subprocess
import sys
from collections.abc import Collection
from typing import Any, NoReturn

from hangdoc import interpreter

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


MOST_MEMORY = 1 << 30
"""Bytes of address space for reading one pickle: a byte of it may make 200 (an empty set), or ask for gigabytes."""
_MOST_OBJECTS = 256 << 20
"""Bytes that the objects of one JSON text may take, by a generous estimate."""
_LONGEST_PLAIN = 48 << 20
_MOST_CALLS = 50_000
_MOST_FRAMES = 1024
_READING_SECONDS = 5.0
_CPU_SECONDS = 8
_limited = False


def parse_json(text: bytes) -> Any:
    """``json.loads`` of what cannot take more memory than is good. Raises ``ValueError`` and ``RecursionError``.

    ``[[],[],…`` takes 21 times its length. Searching for the signs that make objects costs a hundredth of the parsing.
    """
    estimate = len(text) + 64 * text.count(b",") + 72 * text.count(b"[") + 240 * text.count(b"{")
    if estimate > _MOST_OBJECTS:
        raise ValueError(f"it may take {estimate >> 20} MiB, more than {_MOST_OBJECTS >> 20}")
    return json.loads(text)


def unpickle(data: bytes) -> dict[Any, Any]:
    """The dict of containers, numbers and text in a pickle; raises ``ValueError`` and ``OSError``.

    No look at the pickle tells what it will allocate. So a process of its own with limited memory reads it and hands
    back JSON; some 100 ms for the 2,000 calls of a flight recorder. Of more calls than ``_MOST_CALLS`` the last count.
    """
    if _limited:
        return load_builtins(data)
    source, sink = os.memfd_create("pickle", os.MFD_CLOEXEC), os.memfd_create("plain", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(source), "wb") as file:
            file.write(data)
        os.lseek(source, 0, os.SEEK_SET)
        _read_elsewhere(source, sink)
        return _rebuilt(parse_json(os.pread(sink, os.fstat(sink).st_size, 0)))
    finally:
        os.close(source)
        os.close(sink)


def limit_memory(most: int) -> None:
    """From now on this process gets no more memory than ``most`` bytes, and may read pickles itself."""
    global _limited  # noqa: PLW0603
    for limit, value in ((resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0)):
        _lower(limit, value)
    _limited = True


def main() -> None:
    """Read a pickle from standard input in bounded memory, write it as JSON; status 1 if that was impossible."""
    gc.disable()  # it would walk through a million objects again and again, and there is no garbage
    limit_memory(MOST_MEMORY)
    _lower(resource.RLIMIT_CPU, _CPU_SECONDS)
    _lower(resource.RLIMIT_FSIZE, _LONGEST_PLAIN)
    try:
        answer = _plain(load_builtins(sys.stdin.buffer.read()))
        text = json.dumps(answer, skipkeys=True, default=lambda _: None).encode()
    except MemoryError:
        os._exit(1)
    except Exception as error:  # whatever a broken pickle makes of itself
        text = json.dumps({"error": str(error)[:300] or type(error).__name__}).encode()
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(1, rest) :]
    os._exit(0)  # without taking a million objects apart


class _BuiltinsOnly(pickle.Unpickler):
    """Containers, numbers and text need no class; whoever asks for one is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise ValueError(f"it names {module_name[:100]}.{global_name[:100]}, and a dump names nothing")

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise ValueError("it refers to something outside itself")


def load_builtins(data: bytes) -> dict[Any, Any]:
    """The dict of builtins in a pickle, read in this process: only where its memory is limited, or where the pickle was
    tried (``bounded``). Raises ``ValueError`` for whatever else it is, and ``MemoryError``."""
    try:
        found = _BuiltinsOnly(io.BytesIO(data)).load()
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise ValueError(f"{type(error).__name__}: {error}"[:300]) from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not a dict")  # noqa: TRY004 - it is their fault, not ours
    return found


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _read_elsewhere(source: int, sink: int) -> None:
    process = subprocess.Popen(
        interpreter.command("from hangdoc.capture.safe import foreign; foreign.main()", options=("-S",)),
        env=interpreter.environment(),
        stdin=source,
        stdout=sink,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(_READING_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"reading it takes longer than {_READING_SECONDS:g} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status != 0:
        raise ValueError(f"reading it takes more than {MOST_MEMORY >> 20} MiB of memory or {_CPU_SECONDS} s")


def _plain(dump: dict[Any, Any]) -> dict[str, Any]:
    """The dump, and apart from it each stack frame once: 2,000 calls share some hundred."""
    frames: list[Any] = []
    numbers: dict[int, int] = {}

    def number(frame: Any) -> int:
        known = numbers.setdefault(id(frame), len(frames))
        if known == len(frames):
            frames.append(frame)
        return known

    def with_numbers(entry: Any) -> Any:
        stack = entry.get("frames") if isinstance(entry, dict) else None
        if not isinstance(stack, list):
            return entry
        return {**entry, "frames": [number(frame) for frame in stack[:_MOST_FRAMES]]}

    entries = dump.get("entries")
    if isinstance(entries, list):
        dump = {**dump, "entries": [with_numbers(entry) for entry in entries[-_MOST_CALLS:]]}
    return {"dump": dump, "frames": frames}


def _rebuilt(answer: dict[str, Any]) -> dict[Any, Any]:
    if "error" in answer:
        raise ValueError(str(answer["error"]))
    dump, frames = answer["dump"], answer["frames"]
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("frames"), list):
            entry["frames"] = [frames[number] for number in entry["frames"]]
    return dict(dump)
