"""What becomes of the verdict on a test: it is sent to the session, the test is interrupted, its ranks are ended."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.announce import Announcer
from hangdoc.capture.safe.text import read_bytes
from hangdoc.errors import WatcherFailed
from hangdoc.kept_files import choose_run_directory
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.pytest_plugin.link import Link
from hangdoc.pytest_plugin.reap import end_ranks
from hangdoc.sidecar.command import Run
from hangdoc.sidecar.hang_command import variables

if TYPE_CHECKING:
    from hangdoc.pytest_plugin.helper import Watched

_INTERRUPTED_SECONDS = 2.0
"""A main thread that runs Python raises at once; one inside C only when it comes back."""
_UNWIND_SECONDS = 15.0
"""How long a test whose ranks are gone may take to come back, before its diagnosis is printed without it. Judgement:
gloo notices a dead peer at once, torchrun within a second."""
_LONGEST_TEXT = 100_000


class TestListener(Announcer):
    """The watcher's listener for one test. What an ``Announcer`` prints is collected and sent."""

    __test__ = False

    def __init__(self, test: Watched, run: Run, link: Link, said: io.StringIO, say: Callable[[str], None]) -> None:
        """``said``: what takes the place of stderr; ``say``: prints where pytest itself prints errors."""
        try:
            folder = choose_run_directory(test.options, run.run_id)
        except WatcherFailed:  # the tests' own folder is not writable: a temporary one
            folder = choose_run_directory(replace(test.options, run_dir=None), run.run_id)
        super().__init__(run.command, test.options, folder)
        self._test = test
        self._run = run
        self._link = link
        self._said_here = said
        self._tell = say
        self._outcome = ""
        self._ranks: tuple[int, ...] = ()
        self._text = ""

    def on_stall(self, snapshot: JobSnapshot, number: int) -> str:
        """Diagnose, and send the report."""
        self._outcome = super().on_stall(self._explained(snapshot), number)
        processes = [rank.process for rank in snapshot.ranks if rank.process is not None and rank.exit is None]
        self._ranks = tuple(process.pid for process in processes if process.pid != self._run.launcher)
        diagnosis, path = self._last
        text = self._taken()[:_LONGEST_TEXT]
        if text and diagnosis is not None and not self._test.state.ended():
            self._text = text
            properties = {name.lower(): value for name, value in variables(diagnosis, path).items()}
            self._link.send(
                test=self._test.number,
                outcome=self._outcome,
                sentence=properties["hangdoc_verdict"],
                text=text,
                properties=properties,
            )
        return self._outcome

    def on_given_up(self) -> None:
        """Nothing: the test's own failure has the verdict, and what is said here would stand in the next one's."""

    def on_change(self, seconds: float) -> None:
        """Nothing: what is said here would stand in the next report, or for it."""

    def after_report(self) -> None:
        """End the test if it hangs: interrupt it, so that it fails where it waits, then end its ranks."""
        if self._outcome != "hang" or self._test.state.ended():
            return
        self._interrupt()
        left = end_ranks(self._run.launcher, self._test.spared.living(), self._ranks)
        self._link.send(test=self._test.number, ended=True, left=left)
        if not self._returns(_UNWIND_SECONDS):
            self._tell(
                f"\nhangdoc: {self._test.name} hangs. Its ranks were ended, and it does not come back: it waits inside "
                f"C code, where nothing can interrupt it.\n{self._text}"
            )

    def on_resume(self, seconds: float) -> None:
        """The ranks move again: a report of a slow job no longer holds."""
        super().on_resume(seconds)
        self._taken()
        self._link.send(test=self._test.number, outcome="moves")

    def on_progress(self, sockets: Mapping[int, Path], now: float) -> None:
        """No early look: a test is short."""

    def may_end(self) -> bool:
        """All of a test's processes run here, and nobody loses a long training."""
        return True

    def _explained(self, snapshot: JobSnapshot) -> JobSnapshot:
        """``snapshot``; of a rank that is the tests' own process it says why its calls are not recorded."""
        inside = {rank.rank for rank in snapshot.ranks if rank.process and rank.process.pid == self._run.launcher}
        why, remedy = "it runs in pytest's own process", "Run it in a process of its own."
        notes = (
            replace(note, why=why, remedy=remedy) if note.what == "journal" and note.rank in inside else note
            for note in snapshot.unavailable
        )
        return replace(snapshot, unavailable=tuple(notes))

    def _interrupt(self) -> None:
        if self._test.signal and _handles(self._run.launcher, self._test.signal):
            with contextlib.suppress(OSError):
                os.kill(self._run.launcher, self._test.signal)
            self._test.interrupted.wait(_INTERRUPTED_SECONDS)

    def _taken(self) -> str:
        """What was printed since the last time."""
        text = self._said_here.getvalue()
        self._said_here.seek(0)
        self._said_here.truncate()
        return text

    def _returns(self, seconds: float) -> bool:
        """True if the test comes back within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not self._test.interrupted.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._test.state.ended(min(left, 0.2)):
                break
        return True


def _handles(pid: int, number: int) -> bool:
    """True if the process has a handler for the signal: without one it would end."""
    for line in (read_bytes(f"/proc/{pid}/status", 16384) or b"").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
