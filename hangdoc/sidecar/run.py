"""One watch from start to end: launch, pass signals on, wait for the command, a watcher beside it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM
from typing import TYPE_CHECKING

from hangdoc.errors import HangdocError
from hangdoc.model.codec import write_atomically
from hangdoc.sidecar import launch
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Listener
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import NoSocketFolder, SocketFolder, living_watcher
from hangdoc.sidecar.signals import SignalGate, pass_on, wake_main_thread

if TYPE_CHECKING:
    from hangdoc.sidecar.logs.stream import LogStream

ABORTED = 124
_ASKED_TO_END = frozenset({SIGINT, SIGTERM, SIGHUP, SIGQUIT})
_LAST_WORDS_SECONDS = 20.0
_STREAM_POLL_SECONDS = 0.02


def run_watched(
    command: Sequence[str],
    options: WatchOptions,
    listener: Listener,
    *,
    run_id: str,
    socket_folder: SocketFolder | NoSocketFolder,
    environment: Mapping[str, str],
    restore_signals: bool = True,
    logs: LogStream | None = None,
) -> int:
    """Run the command to its end, watched. Returns its exit status, negative for a signal; 124 if aborted.

    ``logs``: the stream of the ranks' logs, which ends with the command; None: the command writes where we do.
    Must be called in the main thread. With ``restore_signals`` False it leaves the signals it took blocked.
    Raises ``CannotRun``, ``CommandNotFound``, ``WatcherFailed``.
    """
    executable = launch.find_executable(command, environment)
    gate = SignalGate()
    try:
        _tell_what_to_record(socket_folder.announced, options)
        child_environment = launch.child_environment(environment, socket_folder.announced)
        child_environment.update(logs.variables if logs is not None else {})
        outputs = logs.outputs if logs is not None else ()
        pid = launch.spawn(command, executable, child_environment, gate.previous_mask, outputs)
        listener.on_start(pid)
        if logs is not None:
            logs.begin(pid, listener.on_no_stream)
        state = CommandState()
        watching = _WatcherThread(
            Run(tuple(command), run_id, pid, socket_folder.path),
            options,
            listener,
            state,
            socket_folder.tidy,
        )
        watching.begin()
        _wait_for_command(pid, gate, state)
        if logs is not None:
            logs.end()
        watching.let_finish(gate)
        if logs is not None:
            _wait_for_stream(logs, gate)
    except BaseException:
        gate.close()
        raise
    gate.close(restore=restore_signals)
    if watching.aborted:
        return ABORTED
    assert state.status is not None
    return state.status


def run_unwatched_if_nested(command: Sequence[str], listener: Listener, environment: Mapping[str, str]) -> None:
    """If a living hangdoc watches us already, become the command; it is watched by the outer one.

    Raises what ``run_watched`` raises.
    """
    outer = living_watcher(environment, launch.PROBE_VARIABLE)
    if outer is None:
        return
    executable = launch.find_executable(command, environment)
    listener.on_nested(outer)
    raise launch.replace_ourselves(command, executable, environment)


def _tell_what_to_record(socket_folder: Path | None, options: WatchOptions) -> None:
    """Leave for the probes what they are to record, where it is not the usual. A full disk leaves the usual."""
    if socket_folder is None or (options.record is None and options.entries is None):
        return
    settings = {"record": options.record, "entries": options.entries}
    settings = {name: value for name, value in settings.items() if value is not None}
    with contextlib.suppress(HangdocError, OSError):
        write_atomically(socket_folder / launch.SETTINGS_FILE, json.dumps(settings).encode(), mode=0o600)


def _wait_for_command(pid: int, gate: SignalGate, state: CommandState) -> None:
    while True:
        received = gate.wait()
        if received is None or received.number == SIGCHLD:
            # Only the direct child: others are of our own helpers, and their threads wait for them.
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                state.end(os.waitstatus_to_exitcode(status))
                return
            continue
        state.asked_to_end |= received.number in _ASKED_TO_END
        pass_on(received, pid)


def _wait_for_stream(logs: LogStream, gate: SignalGate) -> None:
    """Until all has been shown: as long as its reader takes, like any program that writes, or until we are to end."""
    while not logs.is_done(_STREAM_POLL_SECONDS):
        received = gate.wait(0.0)
        if received is not None and received.number in _ASKED_TO_END:
            return


class _WatcherThread(threading.Thread):
    def __init__(
        self, run: Run, options: WatchOptions, listener: Listener, state: CommandState, tidy: Callable[[], None]
    ) -> None:
        super().__init__(name="hangdoc-watcher", daemon=True)
        self._tidy = tidy
        self._arguments = (run, options, listener, state)
        self._listener = listener
        self._state = state
        self._done = threading.Event()
        self.aborted = False

    def begin(self) -> None:
        """Start watching, if the machine lets us: the command runs already."""
        try:
            self.start()
        except RuntimeError as error:  # no more threads
            self._done.set()
            self._listener.on_blind(str(error))

    def run(self) -> None:
        try:
            # Imported here: the command starts while we read our own modules.
            from hangdoc.sidecar.loop import Watcher

            self._tidy()
            self.aborted = Watcher(*self._arguments).watch()
        except Exception as error:  # a failure in here must never reach the job
            if not self._state.ended():
                self._listener.on_blind(f"{type(error).__name__}: {error}")
        finally:
            self._done.set()
            wake_main_thread()

    def let_finish(self, gate: SignalGate) -> None:
        """Wait for last words, in bounded time, or until the user loses patience."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not self._done.is_set() and (left := deadline - time.monotonic()) > 0:
            received = gate.wait(left)
            if received is not None and received.number in _ASKED_TO_END:
                break
