"""Signals pass through hangdoc to the launcher, once each, and the terminal's job control keeps working.

The signals are blocked in every thread of ours and taken with ``sigwaitinfo``, because only that tells who
sent them: what the terminal sends goes to the whole foreground process group, so the launcher has it already,
and a second SIGINT would cost torchrun its grace period.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from dataclasses import dataclass

_REAL_TIME = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGXCPU,
        signal.SIGPWR,
        signal.SIGIO,
        signal.SIGTSTP,
        *_REAL_TIME,
    }
)
_FROM_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Received:
    """A signal we took. ``by_kernel``: sent by the terminal or a timer, not by a process."""

    number: int
    by_kernel: bool


def should_forward(received: Received, *, same_group: bool, session_leader: bool) -> bool:
    """Whether the launcher does not have this signal yet.

    A terminal that hangs up tells the session leader alone, so SIGHUP is passed on if that is us.
    """
    if not received.by_kernel or received.number not in _FROM_TERMINAL or not same_group:
        return True
    return received.number == signal.SIGHUP and session_leader


class SignalGate:
    """Takes the signals of this process for the time of a watch. Make it, and wait on it, in the main thread.

    Signals that were ignored when hangdoc started (nohup, background jobs) stay ignored, in the command too.
    """

    def __init__(self) -> None:
        taken = {number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN}
        self._taken = taken | {signal.SIGCHLD}
        # A parent that ignores SIGCHLD would make the kernel throw our command's exit status away.
        self._old_child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)

    def wait(self, seconds: float | None = None) -> Received | None:
        """Block until a signal arrives, SIGCHLD among them; None if none did within ``seconds``."""
        info = signal.sigwaitinfo(self._taken) if seconds is None else signal.sigtimedwait(self._taken, seconds)
        return Received(info.si_signo, by_kernel=info.si_code > 0) if info is not None else None

    def close(self, *, restore: bool = True) -> None:
        """Let signals act as before; those that came too late for the command are dropped.

        Without ``restore`` they stay blocked: a second ctrl-C must not change the status of a program that has
        nothing left to do but to exit.
        """
        if not restore:
            return
        while signal.sigtimedwait(self._taken, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.previous_mask)
        if self._old_child_handler is not None:
            signal.signal(signal.SIGCHLD, self._old_child_handler)


def pass_on(received: Received, launcher: int) -> None:
    """Forward one signal to the launcher where it needs it; stop with it on ctrl-Z."""
    try:
        same_group = os.getpgid(launcher) == os.getpgrp()
    except ProcessLookupError:
        return
    forward = should_forward(received, same_group=same_group, session_leader=os.getsid(0) == os.getpid())
    if forward:
        _send(launcher, received.number)
    if received.number == signal.SIGTSTP:
        _stop_until_continued()
        if forward:
            # The shell continues the whole group; whoever stopped only us continues only us.
            _send(launcher, signal.SIGCONT)


def wake_main_thread() -> None:
    """Make ``SignalGate.wait`` return."""
    os.kill(os.getpid(), signal.SIGCHLD)


def die_of(number: int) -> int:
    """End this process by signal ``number``, without a core dump of our own.

    Returns the status to exit with where the signal cannot kill us (the first process of a container).
    """
    # PR_SET_DUMPABLE, because a core pattern that is a pipe does not look at the limit.
    import ctypes

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


def _stop_until_continued() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _send(pid: int, number: int) -> None:
    # The launcher is our unreaped child, so the pid is its own; setuid programs may refuse.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
