"""What any hand may have written is tried in a process of its own, which may take so much memory and no more.

A pickle of a few megabytes can ask for gigabytes: by memo numbers, by one-byte opcodes that make an object of 200
bytes each. What the worker could load, or refuse, within the limits, the caller can as well.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import sys
import time
from types import TracebackType

MOST_MEMORY = 384 << 20
"""Bytes that one document may take, the interpreter's own included."""
LONGEST_S = 5.0
"""Seconds for one document."""

# Reads length and bytes, answers one byte: whether it came to an end with them. It is started anew where it does not
# answer. It begins in "/", whose modules are nobody's, and not in a folder that may be the job's.
_WORKER = """
import sys; sys.path[:] = [p for p in sys.path if p not in ('', '/')]
import io, pickle, resource, struct
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
class Builtins(pickle.Unpickler):
    def find_class(self, *_): raise ValueError
    def persistent_load(self, _): raise ValueError
while len(head := sys.stdin.buffer.read(8)) == 8:
    data = sys.stdin.buffer.read(*struct.unpack('<Q', head))
    answer = b'+'
    try:
        Builtins(io.BytesIO(data)).load()
    except MemoryError:
        answer = b'-'
    except Exception:
        pass
    del data
    sys.stdout.buffer.write(answer); sys.stdout.buffer.flush()
"""


class PickleTrial:
    """Tells of pickles of builtins whether loading them stays within the limits. A context manager."""

    def __init__(self, *, memory: int = MOST_MEMORY, longest_s: float = LONGEST_S) -> None:
        """Limits for each document; nothing is started yet."""
        self._memory, self._longest_s = memory, longest_s
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PickleTrial:
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _at: TracebackType | None) -> None:
        self._end()

    def ends(self, data: bytes) -> bool:
        """Does loading ``data`` come to an end, good or bad? False as well where no worker can be started."""
        try:
            return self._try(data)
        except (OSError, ValueError):
            self._end()
            return False

    def _try(self, data: bytes) -> bool:
        if self._worker is None:
            command = [sys.executable, "-S", "-c", _WORKER, str(self._memory)]
            self._worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, cwd="/"
            )
            assert self._worker.stdin is not None
            os.set_blocking(self._worker.stdin.fileno(), False)
        worker = self._worker
        assert worker.stdin is not None
        assert worker.stdout is not None
        deadline = time.monotonic() + self._longest_s
        left = memoryview(struct.pack("<Q", len(data)) + data)
        while (wait := deadline - time.monotonic()) > 0:
            readable, writable, _ = select.select([worker.stdout], [worker.stdin] if left else [], [], wait)
            if readable:
                answer = os.read(worker.stdout.fileno(), 1)
                if answer:
                    return answer == b"+"
                break
            if writable:
                left = left[os.write(worker.stdin.fileno(), left[: 1 << 16]) :]
        self._end()
        return False

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()
