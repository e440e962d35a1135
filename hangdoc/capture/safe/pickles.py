"""Pickles from a job, read in a worker process with limited memory and time.

The contents of a pickle do not show how much it allocates: a few megabytes can ask for gigabytes by memo numbers, or by
one-byte opcodes that each create an object of 200 bytes. So a worker reads every pickle, and the caller takes what it
found as JSON. (Files of dumps have workers of their own, which answer with less: ``hangdoc.capture.dumps``.)
"""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import resource
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from hangdoc import interpreter
from hangdoc.capture.safe.foreign import limit_memory, lower_limit, memory_is_limited, parse_json
from hangdoc.capture.safe.tool import end


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading one pickle may take."""

    memory: int
    """Bytes of the worker's address space, including the interpreter's own (about 20 MiB)."""
    seconds: float = 5.0
    """Until the answer is complete. Starting the worker and reading 2,000 calls takes about 0.1 s."""
    answer: int = 48 << 20
    """Bytes of the JSON text: 100 times what a recorder's 2,000 calls take."""


PROBE_LIMITS = Limits(memory=1 << 30)
"""For a probe's answer, which the worker holds as objects and as JSON at the same time."""

_MOST_CALLS = 50_000
"""Of a dump as JSON, the newest: 25 times what a recorder keeps by default (TORCH_FR_BUFFER_SIZE, torch 2.13)."""
_MOST_FRAMES = 1024
_CPU_MARGIN = 3
"""CPU seconds beyond ``Limits.seconds``: this limit only ends a worker that has lost its parent."""
_CHUNK = 1 << 16
"""Bytes for each write: the capacity of a pipe (pipe(7), Linux >= 2.6.11)."""

# A request is the length of the pickle, then the pickle.
# An answer is one of _DONE, _BAD and _TOO_MUCH with the length of a text, then the text.
_HEADER = struct.Struct("<cQ")
_LENGTH = struct.Struct("<Q")
_DONE, _BAD, _TOO_MUCH = b"+", b"!", b"-"


def unpickle(data: bytes) -> dict[Any, Any]:
    """The dict of containers, numbers and text in a pickle, as JSON has them; raises ``ValueError`` and ``OSError``.

    Of more than ``_MOST_CALLS`` calls, the newest are kept. A process with limited memory reads the pickle itself.
    """
    if memory_is_limited():
        return load_builtins(data)
    with PickleWorker(PROBE_LIMITS) as worker:
        return worker.as_json(data)


class PickleWorker:
    """A worker that reads one pickle after the other. It is started on demand, and again after it had to be ended.

    A context manager.
    """

    def __init__(self, limits: Limits) -> None:
        """``limits`` hold for each pickle. Nothing is started yet."""
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PickleWorker:
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _at: TracebackType | None) -> None:
        self._end()

    def as_json(self, data: bytes) -> dict[Any, Any]:
        """The dict in ``data``, a pickle or JSON, after a way through JSON; raises ``ValueError`` and ``OSError``."""
        status, text = self._ask(data)
        if status == _BAD:
            raise ValueError(text.decode(errors="replace"))
        if status != _DONE:
            raise ValueError(f"reading it takes more than {self._limits.memory >> 20} MiB of memory")
        return _with_shared_frames(parse_json(text))

    def _ask(self, data: bytes) -> tuple[bytes, bytes]:
        """Status and text of the answer. After an error the worker is ended, since it may still be busy."""
        try:
            return self._exchange(_LENGTH.pack(len(data)) + data, time.monotonic() + self._limits.seconds)
        except BrokenPipeError:
            self._end()
            return _TOO_MUCH, b""  # it was killed, by its limit or by the system
        except BaseException:
            self._end()
            raise

    def _exchange(self, request: bytes, deadline: float) -> tuple[bytes, bytes]:
        worker = self._process = self._process or self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        left, answer = memoryview(request), bytearray()
        while (wait := deadline - time.monotonic()) > 0:
            readable, writable, _ = select.select([worker.stdout], [worker.stdin] if left else [], [], wait)
            if readable:
                chunk = os.read(worker.stdout.fileno(), _CHUNK)
                if not chunk:
                    raise BrokenPipeError
                answer += chunk
                if len(answer) >= _HEADER.size:
                    status, length = _HEADER.unpack_from(answer)
                    if length > self._limits.answer:
                        raise ValueError(f"its contents take more than {self._limits.answer >> 20} MiB")
                    if len(answer) - _HEADER.size >= length:
                        return status, bytes(answer[_HEADER.size :])
            elif writable:
                left = left[os.write(worker.stdin.fileno(), left[:_CHUNK]) :]
        raise ValueError(f"reading it takes longer than {self._limits.seconds:g} s")

    def _start(self) -> subprocess.Popen[bytes]:
        limits = self._limits
        words = (limits.memory, int(limits.seconds) + _CPU_MARGIN, limits.answer)
        code = "from hangdoc.capture.safe import pickles; pickles.main()"
        process = subprocess.Popen(
            interpreter.command(code, *map(str, words), options=("-S",)),
            env=interpreter.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _end(self) -> None:
        worker, self._process = self._process, None
        if worker is not None:
            end(worker)


class _BuiltinsOnly(pickle.Unpickler):
    """Containers, numbers and text need no class, so every request for a class is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise ValueError(f"it names {module_name[:100]}.{global_name[:100]}, and a dump names nothing")

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise ValueError("it refers to something outside itself")


def load_builtins(data: bytes) -> dict[Any, Any]:
    """The dict of builtins in a pickle, read in this process.

    Only where this process has limited memory. Raises ``MemoryError``, and ``ValueError`` for everything else that is
    wrong with it.
    """
    try:
        # Of a plain BytesIO, which cannot be peeked into, every few bytes are read by a call of their own.
        found = _BuiltinsOnly(io.BufferedReader(io.BytesIO(data), _CHUNK)).load()
    except MemoryError:
        raise
    except Exception as error:  # a broken pickle can raise any exception
        raise ValueError(f"{type(error).__name__}: {error}"[:300]) from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not a dict")  # noqa: TRY004 - it is their fault, not ours
    return found


# What runs in the worker


def main() -> None:
    """Answer requests from standard input until it ends. ``sys.argv[1:]``: bytes, CPU seconds for each, answer's bytes.

    The garbage collector is off while a pickle is read: it would walk through a million objects again and again.
    """
    memory, cpu_seconds, longest = map(int, sys.argv[1:4])
    gc.disable()
    gc.freeze()
    limit_memory(memory)
    lower_limit(resource.RLIMIT_FSIZE, 0)
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        allow_cpu(cpu_seconds)
        status, text = _answer(sys.stdin.buffer.read(*_LENGTH.unpack(head)))
        if len(text) > longest:
            status, text = _TOO_MUCH, b""
        sys.stdout.buffer.write(_HEADER.pack(status, len(text)) + text)
        sys.stdout.buffer.flush()
        gc.collect()


def _answer(data: bytes) -> tuple[bytes, bytes]:
    try:
        found = json.loads(data) if data[:1] == b"{" else load_builtins(data)  # no pickle begins so
        return _DONE, json.dumps(_as_plain(found), skipkeys=True, default=lambda _: None).encode()
    except MemoryError:
        return _TOO_MUCH, b""
    except Exception as error:  # as above; JSON adds nesting that is too deep
        return _BAD, (str(error)[:300] or type(error).__name__).encode()


def allow_cpu(seconds: int) -> None:
    """Let the kernel end this process when it has used so many more seconds of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = int(used.ru_utime + used.ru_stime) + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _as_plain(dump: dict[Any, Any]) -> dict[str, Any]:
    """The dump, and apart from it each stack frame once: 2,000 calls share some hundred.

    ``{"entries": [{"frames": [f, g]}, {"frames": [g]}]}`` →
    ``{"dump": {"entries": [{"frames": [0, 1]}, {"frames": [1]}]}, "frames": [f, g]}``.
    """
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


def _with_shared_frames(answer: dict[str, Any]) -> dict[Any, Any]:
    """The dump that ``_as_plain`` made ``answer`` from."""
    dump, frames = answer["dump"], answer["frames"]
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("frames"), list):
            entry["frames"] = [frames[number] for number in entry["frames"]]
    return dict(dump)
