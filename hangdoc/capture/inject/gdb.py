"""A conversation with gdb (8.1 or newer) over its machine interface, while it holds another process.

gdb's death while it calls a function inside the process would end that process: the call returns into a
breakpoint that only gdb understands. So gdb lives in a session of its own, writes to a file instead of a pipe
that could break, and is never killed during a call: when hangdoc ends, gdb finishes its commands, lets the process
go, and ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time

_POLL_SECONDS = 0.002
"""Between two looks at gdb's output, while it holds a rank: an injection takes 0.25 to 0.35 s (measured)."""
_LEAVE_SECONDS = 2.0
"""How long gdb may take to detach and end before it is killed. Judgement."""

# No DWARF, no init files, no downloads, no libthread_db: the names that programs export are all we need.
_ARGUMENTS = ("--nx", "--nh", "--quiet", "--readnever", "--interpreter=mi2")
_SETTINGS = (
    "auto-load off",
    "auto-solib-add off",
    "debuginfod enabled off",
    "confirm off",
    "pagination off",
    "language c",
    "unwindonsignal on",
    "print thread-events off",
    "libthread-db-search-path /dev/null",
)
# Signals go on to the process, and do not end a call; but a crash inside the call is undone.
_SIGNALS = (
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",
    "handle SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT stop",
)
_ERROR = re.compile(r'\^error,msg="((?:[^"\\]|\\.)*)"')
_VALUE = re.compile(r'\^done,value="(-?\d+|0x[0-9a-f]+)')
_THREAD = re.compile(r'id="(\d+)",target-id="[^"]*?LWP (\d+)')


class GdbError(Exception):
    """gdb refused a command; the text is its own."""


def find_gdb() -> str | None:
    """The gdb on PATH, or None."""
    return shutil.which("gdb")


class Gdb:
    """One gdb. Every command has a deadline (of time.monotonic) and raises ``GdbError`` or ``TimeoutError``."""

    def __init__(self, program: str) -> None:
        """Start it. OSError if it cannot be started."""
        # Without what gdb's own Python would read, and servers that it would ask for symbols.
        unwanted = ("PYTHONPATH", "PYTHONHOME", "DEBUGINFOD_URLS")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        settings = [word for setting in _SETTINGS for word in ("-iex", f"set {setting}")]
        signals = [word for line in _SIGNALS for word in ("-iex", line)]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with gdb
        self._process = subprocess.Popen(
            [program, *_ARGUMENTS, *settings, *signals],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**environment, "LC_ALL": "C"},
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # a gdb that crashes leaves no core where the user works
            resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))
        self._read = 0
        self._received = b""
        self._asked = 0

    @property
    def pid(self) -> int:
        """gdb's own pid."""
        return self._process.pid

    def ready(self, until: float) -> None:
        """Wait until gdb takes commands, so that the next one runs at once."""
        self.ask("-gdb-set width 0", until)

    def attach(self, pid: int, until: float) -> None:
        """Stop the process and hold it."""
        self.ask(f"-target-attach {pid}", until)

    def console(self, command: str, until: float) -> str:
        """Run a command as typed at gdb's prompt."""
        return self.ask(console(command), until)

    def evaluate(self, expression: str, until: float) -> int:
        """The value of a C expression that is a number; it may call functions of the process."""
        return _number(self.ask(evaluation(expression), until))

    def write(self, address: int, data: bytes, until: float) -> None:
        """Put ``data`` into the process's memory."""
        self.ask(f"-data-write-memory-bytes {address:#x} {data.hex()}", until)

    def select_thread(self, tid: int, until: float) -> None:
        """Let the coming calls run on that thread."""
        for number, found in _THREAD.findall(self.ask("-thread-info", until)):
            if int(found) == tid:
                self.ask(f"-thread-select {number}", until)
                return
        raise GdbError(f"it sees no thread {tid}")

    def last_words(self, until: float, *commands: str) -> int:
        """Send all commands at once, then detach and end: gdb does it even if hangdoc is gone by then.

        Returns the value of the first command, an ``evaluation``. After TimeoutError gdb is still busy; leave it alone.
        """
        number = self._send(*commands, "-target-detach", "-gdb-exit")
        return _number(self._answer(number, until))

    def ask(self, command: str, until: float) -> str:
        """Send one command and wait for its result record."""
        return self._answer(self._send(command), until)

    def end(self) -> bool:
        """Let go of the process and end, also in the middle of an attach. False: it had to be killed."""
        with contextlib.suppress(GdbError):
            self._send("-target-detach", "-gdb-exit")
        if self.wait(_LEAVE_SECONDS):
            return True
        self._process.kill()
        self.wait(_LEAVE_SECONDS)
        return False

    def wait(self, seconds: float) -> bool:
        """Whether gdb ended within that time; its input is closed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._output.close()
        return True

    def _send(self, *commands: str) -> int:
        first = self._asked + 1
        lines = [f"{first + index}{command}\n" for index, command in enumerate(commands)]
        self._asked += len(commands)
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise GdbError("it was asked to end already")
        try:
            # One write: all of it reaches gdb or nothing does.
            os.write(stdin.fileno(), "".join(lines).encode())
        except OSError as error:
            raise GdbError(f"it is gone: {error.strerror}") from None
        return first

    def _answer(self, number: int, until: float) -> str:
        wanted = re.compile(rb"^%d\^(?:done|running|connected|error|exit)[^\n]*\n" % number, re.MULTILINE)
        while True:
            ended = self._process.poll() is not None
            # Our own place in the file: gdb writes at the place that the two share.
            piece = os.pread(self._output.fileno(), 1 << 20, self._read)
            self._read += len(piece)
            self._received += piece
            match = wanted.search(self._received)
            if match is not None:
                self._received = self._received[match.end() :]
                answer = match[0].decode("utf-8", "replace")
                failed = _ERROR.search(answer)
                if failed is not None:
                    raise GdbError(failed[1].replace('\\"', '"')[:300])
                return answer
            if time.monotonic() > until:
                raise TimeoutError
            if ended and not piece:
                raise GdbError(f"it ended with status {self._process.returncode}")
            time.sleep(_POLL_SECONDS)


def evaluation(expression: str) -> str:
    """The command that prints the value of a C expression."""
    return f'-data-evaluate-expression "{_quoted(expression)}"'


def console(command: str) -> str:
    """The command that does what ``command`` does at gdb's prompt."""
    return f'-interpreter-exec console "{_quoted(command)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _number(answer: str) -> int:
    match = _VALUE.search(answer)
    if match is None:
        raise GdbError(f"no number: {answer[-200:]}")
    return int(match[1], 0)
