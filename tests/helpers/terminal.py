"""A hangdoc under a real pseudo-terminal or behind pipes, read with deadlines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DEADLINE = 90.0
HANGDOC = [sys.executable, "-m", "hangdoc"]
# As session leader, opening a terminal makes it the controlling one.
_TAKE_TERMINAL = "import os, sys; os.close(os.open(sys.argv[1], os.O_RDWR)); os.execvp(sys.argv[2], sys.argv[2:])"


def environment(**extra: str) -> dict[str, str]:
    """Ours without hangdoc's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    kept.pop("PYTHONPATH", None)
    return {**kept, "NO_COLOR": "1", **extra}


class Terminal:
    """A command whose stdin, stdout, stderr and controlling terminal are a pseudo-terminal of 91 x 37."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 37, 91, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, os.ttyname(slave), *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        os.close(slave)
        self.output = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, pattern: str, deadline: float = DEADLINE) -> re.Match[str]:
        """Wait for ``pattern`` in what was written since the start."""
        end = time.monotonic() + deadline
        while (match := re.search(pattern, self.output)) is None:
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} never came; the terminal shows:\n{self.output}")
        return match

    def end(self, deadline: float = DEADLINE) -> int:
        """The exit status, once it ended; ``output`` is then complete."""
        end = time.monotonic() + deadline
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)
        status = self.process.wait(max(0.1, end - time.monotonic()))
        while self._read(0.2):
            pass
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        os.close(self.master)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # nobody has the terminal open any more
            return False
        self.output += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def wait_until(condition: Callable[[], object], deadline: float = DEADLINE, what: str = "it") -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {deadline} s"
        time.sleep(0.02)


def state(pid: int) -> str:
    """The letter of /proc/PID/stat; '' for a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def child_of(pid: int) -> int:
    """The one child of ``pid``'s main thread, waiting for it."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: path.read_text().split(), what="the start of the command")
    return int(path.read_text().split()[0])


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
