"""The watched command: what identifies it, and whether it still runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """The facts about a running command that the watcher needs."""

    command: tuple[str, ...]
    run_id: str
    launcher: int
    socket_folder: Path
    left_out: Callable[[], frozenset[int]] = frozenset
    """Pids below the launcher that are not of the job, with all that is below them."""


class CommandState:
    """Whether the command still runs: written by the main thread, read by the watcher's."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.status: int | None = None
        """As ``os.waitstatus_to_exitcode`` gives it, once it ended."""
        self.asked_to_end = False
        """hangdoc was sent a signal that ends programs and passed it on: such an end needs no diagnosis."""

    def ended(self, wait_seconds: float = 0.0) -> bool:
        """True if the command ended; waits for it at most this long."""
        return self._ended.wait(wait_seconds) if wait_seconds > 0 else self._ended.is_set()

    def end(self, status: int) -> None:
        """The command was reaped."""
        self.status = status
        self._ended.set()
