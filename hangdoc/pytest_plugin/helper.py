"""The process beside a pytest session: watches what the running test has started, and ends it if it hangs.

It is nobody's child, so that tests which wait for any child of theirs, or count them, do not see it. It ends with the
session, however that ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hangdoc.errors import WatcherFailed
from hangdoc.pytest_plugin.link import Link
from hangdoc.pytest_plugin.reap import Spared
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import SocketFolder, new_run_id

START_WATCH_SECONDS = 1.0
"""A shorter test costs its session two messages and nothing else."""
_LAST_WORDS_SECONDS = 5.0


class Said(io.StringIO):
    """Takes the place of stderr: what a watch would print goes into the test's report."""

    unicode = True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the terminal that will show it in the end."""
        return "utf-8" if self.unicode else "ascii"


@dataclass
class Watched:
    """The running test. ``due``: when its watch begins, monotonic; ``signal``: 0, or what interrupts the test."""

    number: int
    name: str
    options: WatchOptions
    signal: int
    due: float
    state: CommandState = field(default_factory=CommandState)
    spared: Spared = field(default_factory=Spared)
    left_alone: bool = False
    interrupted: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        # However a test ends, that is pytest's to tell.
        self.state.asked_to_end = True


def main(words: list[str]) -> None:
    """``words``: the descriptor of the link, the pid of the tests' process."""
    descriptor, parent = int(words[0]), int(words[1])
    link = Link(socket.socket(fileno=descriptor))
    try:
        folder = SocketFolder(os.environ)
    except WatcherFailed as error:
        link.send(failed=error.what)
        return
    try:
        link.send(ready=str(folder.path), pid=os.getpid())
        terminal, said = sys.stderr, Said()
        sys.stderr = said
        os.environ["NO_COLOR"] = "1"
        Helper(link, parent, folder, said, lambda text: _print(terminal, text)).serve()
    finally:
        folder.close()


class Helper:
    """Serves one pytest process. ``say`` prints where pytest itself prints errors."""

    def __init__(self, link: Link, parent: int, folder: SocketFolder, said: Said, say: Callable[[str], None]) -> None:
        self._link = link
        self._parent = parent
        self._folder = folder
        self._said = said
        self._say = say
        self._test: Watched | None = None
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Until the session ends."""
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # before Linux 5.3 the link alone shows the session's end
                stack.callback(os.close, session := os.pidfd_open(self._parent))
                poll.register(session, select.POLLIN)
            while not self._link.closed:
                woken = poll.poll(self._until_due() * 1000)
                if any(descriptor != self._link.fileno() for descriptor, _ in woken):
                    break
                for message in self._link.receive():
                    if not self._take(message):
                        self._link.close()
                        break
                self._begin_if_due()
        self._end(None)
        if self._thread is not None:
            self._thread.join(_LAST_WORDS_SECONDS)

    def _until_due(self) -> float:
        """Seconds until something is to be done; an hour where nothing is."""
        test = self._test
        if test is None or test.left_alone or self._is_watched(test):
            return 3600.0
        # An earlier test's watch may be about to end.
        return max(0.1 if self._thread is not None and self._thread.is_alive() else 0.0, test.due - time.monotonic())

    def _is_watched(self, test: Watched) -> bool:
        return self._thread is not None and self._thread.name == f"test-{test.number}"

    def _take(self, message: dict[str, Any]) -> bool:
        """Do what the session says; False if it ends."""
        what, test = message.get("do"), self._test
        if what == "begin":
            self._begin(message)
        elif what == "end":
            self._end(None)
        elif what == "bye":
            return False
        elif test is None:
            pass
        elif what == "spare":
            test.spared.add(message["pids"])
        elif what == "hurry" and not self._is_watched(test):
            test.options = replace(test.options, stall_after=float(message["patience"]))
        elif what == "leave":
            self._leave_alone(test)
        elif what == "return":
            self._return_to(test)
        elif what == "interrupted" and message["test"] == test.number:
            test.interrupted.set()
        return True

    def _begin(self, message: dict[str, Any]) -> None:
        self._end(None)
        options = WatchOptions(
            stall_after=float(message["patience"]),
            give_up_after=float(message["give_up_after"]),
            run_dir=Path(message["folder"]) / ".hangdoc" / new_run_id(),
            quiet=True,
            meet="off",
        )
        due = time.monotonic() + START_WATCH_SECONDS
        self._test = Watched(message["test"], message["name"], options, message["signal"], due)
        self._test.spared.add(message["children"])
        os.environ["COLUMNS"] = str(message["columns"])
        self._said.unicode = message["unicode"]

    def _end(self, then: Watched | None) -> None:
        """The test has ended, or is to be left alone: its watch ends."""
        if self._test is not None:
            self._test.state.end(0)
        self._test = then

    def _leave_alone(self, test: Watched) -> None:
        # The same test with another state: the old watch ends, and a new one may begin.
        test.state.end(0)
        test.left_alone = True

    def _return_to(self, test: Watched) -> None:
        again = Watched(test.number, test.name, test.options, test.signal, time.monotonic(), spared=test.spared)
        self._test = again

    def _begin_if_due(self) -> None:
        test = self._test
        if test is None or test.left_alone or self._is_watched(test) or time.monotonic() < test.due:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._watch, args=(test,), name=f"test-{test.number}", daemon=True)
        self._thread.start()

    def _watch(self, test: Watched) -> None:
        from hangdoc.pytest_plugin.listener import TestListener
        from hangdoc.sidecar.loop import Watcher

        name = test.name.partition("::")[0]
        run = Run(("pytest", name), new_run_id(), self._parent, self._folder.path, test.spared.living)
        listener = None
        try:
            listener = TestListener(test, run, self._link, self._said, self._say)
            Watcher(run, test.options, listener, test.state).watch()
        except Exception as error:  # a bug in hangdoc must not fail a test; it is said once
            if not test.state.ended():
                self._link.send(test=test.number, outcome="failed", text=f"{type(error).__name__}: {error}")
        finally:
            if listener is not None:
                listener.close()


def _print(terminal: Any, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        terminal.write(text)
        terminal.flush()
