from __future__ import annotations

import signal

import pytest

from hangdoc.sidecar.signals import PASSED_ON, Received, should_forward

TERMINAL = [signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP]


@pytest.mark.parametrize("number", TERMINAL)
def test_what_the_terminal_told_the_whole_group_is_not_told_again(number: int) -> None:
    received = Received(number, by_kernel=True)
    assert not should_forward(received, same_group=True, session_leader=False)
    assert should_forward(received, same_group=False, session_leader=False)


@pytest.mark.parametrize("number", sorted(PASSED_ON))
def test_what_a_process_sent_us_is_passed_on(number: int) -> None:
    received = Received(number, by_kernel=False)
    assert should_forward(received, same_group=True, session_leader=False)
    assert should_forward(received, same_group=False, session_leader=True)


def test_a_session_leader_passes_the_hangup_on() -> None:
    received = Received(signal.SIGHUP, by_kernel=True)
    assert should_forward(received, same_group=True, session_leader=True)


def test_an_alarm_is_passed_on() -> None:
    # `alarm 60; exec hangdoc watch …`: timers survive exec and are not inherited by the command.
    assert should_forward(Received(signal.SIGALRM, by_kernel=True), same_group=True, session_leader=False)


def test_faults_and_job_control_of_our_own_are_left_alone() -> None:
    own = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGABRT, signal.SIGCHLD, signal.SIGCONT}
    assert not own & PASSED_ON
