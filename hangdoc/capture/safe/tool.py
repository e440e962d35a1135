"""Run a program that looks at a process and ends by itself (py-spy, pystack), within a deadline."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_CHUNK = 1 << 16
_MOST_ERRORS = 1 << 20
"""Bytes of stderr that are kept, the last ones: why a program failed is in its last lines. Judgement."""
_GLANCE_SECONDS = 0.2
"""How often to see whether a silent program has ended: a child of its own may keep its pipes open. Judgement."""
_REAP_SECONDS = 0.5
"""How long a killed program may take to end. It takes longer only in an uninterruptible system call. Judgement."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a program ended, and what it wrote. ``status``: its exit status, negative for the signal that ended it."""

    status: int
    output: bytes
    errors: bytes
    cut: bool = False
    """True if ``output`` is only the beginning of what it wrote."""


def run_tool(
    command: Sequence[str], *, until: float, most_output: int, environment: Mapping[str, str] | None = None
) -> ToolResult:
    """Run ``command`` to its end and return what it wrote: the first ``most_output`` bytes of its stdout.

    Raises ``OSError`` if it cannot be started, and ``TimeoutError`` if it has not ended by ``until`` (of
    time.monotonic); it is killed then, with what it has started. It is not killed for writing too much, since it may
    hold a process: what it writes beyond the limit is read and thrown away. Example: ``run_tool(["yes"],
    until=monotonic() + 1, most_output=100)`` raises ``TimeoutError`` and takes no more memory than
    ``run_tool(["true"], …)``.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C meant for the job must not end a tool, least of all while it holds a process
    )
    try:
        output, errors, cut = _read(process, until, most_output)
        status = process.wait(max(0.0, until - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        _kill_all_of(process)
        raise TimeoutError(f"{command[0]} has not ended in time") from None
    finally:
        end(process)
    return ToolResult(status, output, errors, cut)


def _kill_all_of(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and the rest of its session: a wrapper script's ssh would stay."""
    if process.poll() is None:  # so the number is still its own
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it still runs, reap it, and close our ends of its pipes. Waits half a second at most.

    A process in an uninterruptible system call is left to ``subprocess``, which reaps it when it starts the next one.
    """
    process.kill()  # by pid, and only if it has not been reaped
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _read(process: subprocess.Popen[bytes], until: float, most_output: int) -> tuple[bytes, bytes, bool]:
    """(the beginning of its stdout, the end of its stderr, True if stdout was longer). TimeoutError at ``until``."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors, cut = bytearray(), bytearray(), False
    with selectors.DefaultSelector() as open_pipes:
        open_pipes.register(process.stdout, selectors.EVENT_READ)
        open_pipes.register(process.stderr, selectors.EVENT_READ)
        while open_pipes.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = open_pipes.select(min(left, _GLANCE_SECONDS))
            if not ready and process.poll() is not None:
                break
            for key, _ in ready:
                pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
                piece = os.read(pipe.fileno(), _CHUNK)
                if not piece:
                    open_pipes.unregister(pipe)
                elif pipe is process.stderr:
                    errors += piece
                    del errors[:-_MOST_ERRORS]
                else:
                    room = most_output - len(output)
                    output += piece[:room]
                    cut = cut or len(piece) > room
    return bytes(output), bytes(errors), cut
