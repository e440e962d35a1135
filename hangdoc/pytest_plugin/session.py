"""Beside the tests: says to the helper which test runs, and puts its verdict into the test's report."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, MutableMapping
from types import FrameType
from typing import Any

import pytest

from hangdoc.pytest_plugin.link import Link, Message
from hangdoc.pytest_plugin.starting import Announced, NotStartedError, start_helper
from hangdoc.sidecar.launch import PROBE_VARIABLE
from hangdoc.sidecar.run_directory import living_watcher

NAME = "hangdoc-session"
LEAST_SECONDS = 0.1
GIVE_UP_FACTOR = 4.0
"""Times the patience, after which a rank that sleeps or polls counts as hung. Judgement: few tests sleep that long."""
SIGNAL = signal.SIGRTMAX - 7
"""Interrupts the main thread where it waits. One that no library is known to use."""
_ENDED_SECONDS = 20.0
"""For the helper to end the ranks: bounds of its own make it answer before."""
_BEFORE_TIMEOUT = 8.0
"""Seconds that a look, a diagnosis and the end of the ranks may take on a busy machine. Judgement."""
_WIDEST = 140


def begin(config: pytest.Config, asked: str | None, environment: MutableMapping[str, str]) -> None:
    """Watch the tests of this process from now on, or say in the header why not. ``asked``: None: only marked ones.

    Raises ``pytest.UsageError`` for seconds that are no number.
    """
    seconds = patience(asked)
    plugin: Session | NotWatched
    if why := _cannot(config, environment):
        plugin = NotWatched(why)
    else:
        plugin = Session(seconds)
        plugin.start(os.fspath(config.rootpath), environment)
    config.pluginmanager.register(plugin, NAME)


def patience(seconds: object) -> float | None:
    """Seconds from the option, the ini file or a marker; None and 0 are off. Raises ``pytest.UsageError``."""
    try:
        found = float(str(seconds)) if seconds is not None else 0.0
    except ValueError:
        found = math.nan
    if found == 0:
        return None
    if not LEAST_SECONDS <= found < math.inf:
        raise pytest.UsageError(f"hangdoc: {seconds!r} is no number of seconds from {LEAST_SECONDS} on: --hangdoc=30")
    return found


def _cannot(config: pytest.Config, environment: MutableMapping[str, str]) -> str:
    """Why this process's tests are not watched; '' if they can be."""
    if _only_distributes(config):
        return "each worker of xdist has its own watch"
    watcher = living_watcher(environment, PROBE_VARIABLE)
    if watcher is not None:
        return f"off, because pid {watcher} watches this pytest already"
    rank, world = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if rank.isdigit() and world.isdigit() and int(world) > 1:
        return (
            f"off, because this pytest is rank {rank} of {world} itself: `hangdoc watch torchrun … -m pytest` sees "
            "all ranks"
        )
    return ""


def _only_distributes(config: pytest.Config) -> bool:
    """True in the process that hands out tests to the workers of xdist."""
    if hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ:
        return False
    chosen = getattr(config, "known_args_namespace", None) or config.option
    return bool(getattr(chosen, "numprocesses", None)) or getattr(chosen, "dist", "no") != "no"


class NotWatched:
    """Takes the session's place where there is nothing to watch."""

    def __init__(self, why: str) -> None:
        self._why = why

    def pytest_report_header(self) -> str:
        """Say why."""
        return f"hangdoc: {self._why}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker of xdist cannot see how wide the terminal is."""
        node.workerinput["hangdoc_columns"] = _columns(node.config)


class Session:
    """Hooks of a watched session. ``seconds``: the patience where a test has no marker; None: only with a marker."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._pid = os.getpid()
        self._link: Link | None = None
        self._why = ""
        self._announced: Announced | None = None
        self._old_handler: Any = None
        self._number = 0
        self._item: pytest.Item | None = None
        self._timeout: tuple[pytest.Item, float] | None = None
        self._inside = False
        """In the test or a fixture, where an exception of ours reaches the report."""
        self._verdict: Message | None = None
        self._ended = False
        self._left: list[int] = []
        """Ranks that could not be ended."""
        self._told = False

    # The session

    def start(self, folder: str, environment: MutableMapping[str, str]) -> None:
        """Start the helper, and let all that the tests start find it. A failure is said in the header."""
        try:
            self._link, answer = start_helper(folder)
        except NotStartedError as error:
            self._why = f"off, because its helper {error}"
            return
        self._folder = folder
        self._announced = Announced(answer, environment)
        if threading.current_thread() is threading.main_thread() and signal.getsignal(SIGNAL) is signal.SIG_DFL:
            self._old_handler = signal.signal(SIGNAL, self._interrupt)

    def pytest_report_header(self) -> str:
        """Say what is watched, or why nothing is."""
        if self._why:
            return f"hangdoc: {self._why}"
        if self._seconds is None:
            return "hangdoc: diagnoses and ends marked tests whose ranks stand still"
        return f"hangdoc: diagnoses and ends a test whose ranks stand still for {self._seconds:g} s"

    def pytest_unconfigure(self) -> None:
        """End the helper, and leave everything as it was."""
        if self._link is None or os.getpid() != self._pid:
            return
        self._link.send(do="bye")
        deadline = time.monotonic() + _ENDED_SECONDS
        while not self._link.closed and time.monotonic() < deadline:
            self._link.receive(0.2)
        if self._old_handler is not None:
            signal.signal(SIGNAL, self._old_handler)
        self._link.close()
        if self._announced is not None:
            self._announced.withdraw()

    # One test

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Say to the helper when a test begins and ends."""
        seconds, give_up_after = self._times(item)
        if seconds is None or self._link is None or self._link.closed or os.getpid() != self._pid:
            return (yield)
        self._number += 1
        self._item, self._verdict, self._ended, self._left, self._told = item, None, False, [], False
        self._link.send(
            do="begin",
            test=self._number,
            name=item.nodeid,
            folder=self._folder,
            patience=seconds,
            give_up_after=give_up_after,
            signal=int(SIGNAL) if self._old_handler is not None else 0,
            children=sorted(own_children()),
            columns=_columns(item.config),
            unicode=_shows_unicode(),
        )
        try:
            return (yield)
        finally:
            self._item = None
            if os.getpid() == self._pid:
                self._link.send(do="end")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """What a fixture of a wider scope has started belongs to later tests as well."""
        if self._item is None or fixturedef.scope == "function":
            return (yield)
        before = own_children()
        try:
            return (yield)
        finally:
            self._send(do="spare", pids=sorted(own_children() - before))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """A fixture may hang as well."""
        with self._interruptible():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """The test itself."""
        with self._interruptible():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Nothing is interrupted twice."""
        with self._interruptible():
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        """pytest-timeout will end this test: the diagnosis has to come before."""
        seconds, _ = self._times(item)
        allowed = float(getattr(settings, "timeout", 0) or 0)
        if item is self._item and seconds is not None and allowed > 0:
            least = max(allowed - _BEFORE_TIMEOUT, allowed / 2)
            self._send(do="hurry", patience=min(seconds, least))

    def pytest_enter_pdb(self) -> None:
        """Whoever debugs a test needs its ranks."""
        self.leave_alone()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the verdict into the report of the phase in which it came."""
        report = yield
        self._receive()
        verdict = self._verdict
        if verdict is None or self._told or item is not self._item:
            return report
        hangs = verdict["outcome"] == "hang"
        if not hangs and not report.failed:
            return report
        self._told = True
        if hangs:
            self._await_the_end()
        self._put_into(report, verdict, item, hangs=hangs)
        return report

    def leave_alone(self) -> None:
        """From now on, the running test is not watched."""
        self._send(do="leave")

    def return_to(self) -> None:
        """The running test is watched again."""
        self._send(do="return")

    def _times(self, item: pytest.Item) -> tuple[float | None, float]:
        """(patience, or None: not watched; when waiting for the outside counts as a hang)."""
        marker = item.get_closest_marker("hangdoc")
        if marker is None:
            return self._seconds, (self._seconds or 0.0) * GIVE_UP_FACTOR
        seconds = patience(marker.args[0]) if marker.args else self._seconds
        give_up_after = marker.kwargs.get("give_up_after")
        return seconds, patience(give_up_after) or (seconds or 0.0) * GIVE_UP_FACTOR

    def _put_into(self, report: pytest.TestReport, verdict: Message, item: pytest.Item, *, hangs: bool) -> None:
        text = str(verdict["text"]).strip("\n")
        if self._left:
            text += f"\nhangdoc: could not end pid {', '.join(map(str, self._left))} (uninterruptible)"
        if hangs and report.passed:
            report.outcome = "failed"
            report.longrepr = _failure(verdict["sentence"])
        longrepr: Any = report.longrepr
        if hasattr(longrepr, "addsection"):
            _shorten_summary(longrepr, verdict["sentence"])
            longrepr.addsection("hangdoc", text)
        else:
            report.sections.append(("hangdoc", text))
        item.user_properties += [(name, value) for name, value in verdict["properties"].items() if value]
        report.user_properties = list(item.user_properties)

    def _await_the_end(self) -> None:
        """Until the ranks are gone: fixtures are about to end, and the next test to begin."""
        deadline = time.monotonic() + _ENDED_SECONDS
        while not self._ended and self._link is not None and not self._link.closed and time.monotonic() < deadline:
            self._receive(0.2)

    @contextlib.contextmanager
    def _interruptible(self) -> Generator[None, None, None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        """The signal's handler: fail where the test waits."""
        __tracebackhide__ = True
        if os.getpid() != self._pid or self._item is None or not self._inside:
            return
        self._receive()
        verdict = self._verdict
        if verdict is None or verdict["outcome"] != "hang":
            return
        self._send(do="interrupted", test=self._number)
        pytest.fail(f"{verdict['sentence']}\n\n{_where(frame, self._item)}", pytrace=False)

    def _receive(self, seconds: float = 0.0) -> None:
        if self._link is None or os.getpid() != self._pid:
            return
        for message in self._link.receive(seconds):
            if message.get("test") != self._number:
                continue  # too late
            if "ended" in message:
                self._ended, self._left = True, message["left"]
            elif message["outcome"] == "failed":
                warnings.warn(f"hangdoc does not watch this test: {message['text']}", stacklevel=2)
            else:
                self._verdict = message if message["outcome"] != "moves" else None
                # A plugin may run a test again, which hangs again.
                self._ended = self._told = False

    def _send(self, **message: Any) -> None:
        if self._item is not None and self._link is not None and os.getpid() == self._pid:
            self._link.send(**message)


def own_children() -> set[int]:
    """The processes that this one has started and that are still its children."""
    found: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - as the rest of /proc is read
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                found.update(map(int, file.read().split()))
    except OSError:  # a kernel that does not list them, or a thread that has just ended
        from hangdoc.capture.read import procfs

        found = {pid for pid, entry in procfs.table().items() if entry.ppid == os.getpid()}
    return found


def _failure(sentence: str) -> Any:
    """What a test that fails with that sentence leaves in its report."""
    try:
        pytest.fail(sentence, pytrace=False)
    except pytest.fail.Exception:
        return pytest.ExceptionInfo.from_current().getrepr(style="value")


def _shorten_summary(longrepr: Any, sentence: str) -> None:
    """Let pytest's summary have a line of our own failure: in CI it prints a whole message, which is above already."""
    crash: Any = getattr(longrepr, "reprcrash", None)
    first = str(getattr(crash, "message", "")).partition("\n")[0]
    if first == f"Failed: {sentence}":
        crash.message = first


def _where(frame: FrameType | None, item: pytest.Item) -> str:
    """'The test waited at test_ddp.py:21 in test_it().': its own innermost line, or a file's beside it."""
    folder = os.fspath(item.path.parent) + os.sep
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and "site-packages" not in file.removeprefix(folder):
            place = f"{file.removeprefix(folder)}:{frame.f_lineno}"
            return f"The test waited at {place} in {frame.f_code.co_name}(); its ranks were ended."
        frame = frame.f_back
    return "Its ranks were ended."


def _columns(config: pytest.Config) -> int:
    """Cells of a line of the terminal."""
    told = getattr(config, "workerinput", {}).get("hangdoc_columns")
    if told is not None:
        return int(told)
    if config.pluginmanager.get_plugin("terminalreporter") is None:
        return 80
    return min(config.get_terminal_writer().fullwidth, _WIDEST)


def _shows_unicode() -> bool:
    encoding = getattr(sys.__stdout__, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "") in ("utf8", "utf8sig")
