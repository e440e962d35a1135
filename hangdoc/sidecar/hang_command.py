"""``--on-hang-exec``: a command of the user's that runs after a hang's report, beside the watch and with a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.model.masking import mask_text
from hangdoc.model.wording import harmless

if TYPE_CHECKING:
    from hangdoc.model.diagnosis import Diagnosis

DEADLINE_SECONDS = 60.0
"""For the command: a webhook, a requeue or a dump takes seconds. Judgement."""
_GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_LONGEST_VALUE = 4000
_MOST_RANKS = 10_000
"""Of HANGDOC_CULPRITS: one variable may have 128 KiB (execve(2))."""
_SHELL = "/bin/sh"


def variables(diagnosis: Diagnosis, snapshot: Path | None) -> dict[str, str]:
    """What the command finds in its environment. ``snapshot``: the saved file; None: it could not be saved."""
    process = next((each for each in diagnosis.culprit_processes if each.pid is not None), None)
    found = {
        "HANGDOC_OUTCOME": str(diagnosis.outcome),
        "HANGDOC_VERDICT": diagnosis.verdict,
        "HANGDOC_CAUSE": diagnosis.cause.code if diagnosis.cause is not None else "",
        "HANGDOC_CONFIDENCE": str(diagnosis.confidence),
        "HANGDOC_HOST": process.host if process is not None else "",
        "HANGDOC_PID": str(process.pid) if process is not None else "",
    }
    clean = {name: harmless(mask_text(value))[:_LONGEST_VALUE] for name, value in found.items()}
    return {
        **clean,
        "HANGDOC_CULPRITS": ",".join(map(str, diagnosis.culprits[:_MOST_RANKS])),
        "HANGDOC_SNAPSHOT": str(snapshot.absolute()) if snapshot is not None else "",
        "HANGDOC_DOCUMENT": str(snapshot.absolute().with_suffix(".json")) if snapshot is not None else "",
    }


class HangCommand:
    """The command line that a shell runs, once for each hang. ``say`` gets one line if it fails."""

    def __init__(self, line: str, say: Callable[[str], None], deadline: float = DEADLINE_SECONDS) -> None:
        self._line = line
        self._say = say
        self._deadline = deadline
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self, document: bytes, environment: Mapping[str, str]) -> None:
        """Run it with ``document`` on its stdin; returns at once. ``environment``: what it finds beside ours."""
        if self._thread is not None and self._thread.is_alive():
            self._say("--on-hang-exec: the command still runs for the hang before, so it is not run for this one")
            return
        self._thread = threading.Thread(
            target=self._run, args=(document, dict(environment)), name="hangdoc-on-hang-exec", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._thread = None
            self._say(f"--on-hang-exec: the command could not be started: {error}")

    def wait(self) -> None:
        """Wait for its end, which its deadline bounds."""
        if self._thread is not None:
            self._thread.join(self._deadline + 2 * _GRACE_SECONDS)

    def close(self) -> None:
        """End it if it still runs."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2 * _GRACE_SECONDS)

    def _run(self, document: bytes, environment: Mapping[str, str]) -> None:
        try:
            failure = self._ended(_spawn(self._line, document, environment))
        except (OSError, ValueError) as error:
            failure = f"could not be started: {getattr(error, 'strerror', None) or error}"
        if failure:
            self._say(f"--on-hang-exec: the command {failure}")

    def _ended(self, pid: int) -> str:
        """Wait for the process, and end it when its time is over. Why that is a failure; '' if it is none."""
        until = time.monotonic() + self._deadline
        status = None
        while status is None and time.monotonic() < until and not self._closing.is_set():
            status = _status(pid)
            if status is None:
                time.sleep(_POLL_SECONDS)
        if status is None:
            _end_group(pid)
            late = time.monotonic() >= until
            return f"{f'has not ended within {self._deadline:.0f} s' if late else 'still ran at the end'} and was ended"
        if status < 0:
            return f"was ended by signal {-status}"
        return f"failed with exit status {status}" if status else ""


def _spawn(line: str, document: bytes, environment: Mapping[str, str]) -> int:
    """Start the command: its stdin is a file with the document, its stdout our stderr.

    Not by ``subprocess``: our signals are blocked in every thread, and its children would inherit that.
    """
    theirs = {**os.environb, **{os.fsencode(name): _encoded(value) for name, value in environment.items()}}
    stdin = os.memfd_create("hangdoc-document")
    try:
        with os.fdopen(os.dup(stdin), "wb") as file:
            file.write(document)
        os.lseek(stdin, 0, os.SEEK_SET)
        return os.posix_spawn(
            _SHELL,
            [_SHELL, "-c", line],
            theirs,
            file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
            setpgroup=0,  # a ctrl-C is meant for the job, and at the deadline all of it can be ended
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    finally:
        os.close(stdin)


def _encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _status(pid: int) -> int | None:
    """The exit status of our child, negative for a signal, which is reaped; None while it runs."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if reaped else None


def _end_group(pid: int) -> None:
    """SIGTERM for the process and those that it started, SIGKILL for those that stay. In bounded time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.killpg(pid, number)  # it has not been reaped, so no other group has the number
        until = time.monotonic() + _GRACE_SECONDS
        while not _has_ended(pid) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
    _status(pid)


def _has_ended(pid: int) -> bool:
    """True if our child has ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
