"""How long to look at ranks that wait for their devices: a training step may leave them so for some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from hangdoc.capture.read import procfs
from hangdoc.model.device_waits import STEP_SECONDS, waits_for_device
from hangdoc.model.process import ProcessState

_PULSE_SECONDS = 0.5
_MOST_MOMENTS = 2
"""In so many half seconds a rank that waits may wake up and have slept. Judgement."""
_SHORTEST_SLEEP = 0.01
"""Seconds of sleep in all below which a rank has not slept: on an H100 that 15 frozen jobs shared in turn, a rank in
three woke up some four times within seconds, for no time that could be measured. Twice the error of what the kernel
counts for a thread that runs, which is a tick."""


def outlast_a_step(first: Mapping[int, ProcessState], second: Mapping[int, ProcessState], pids: Iterable[int]) -> bool:
    """Wait while processes of ``pids`` that wait for their devices stay so, some seconds at most; False at once if
    none does. After True the second look is out of date.

    Examples: all ranks poll their devices, and one sleeps in three half seconds, as in backward() → True after the
    third of them; one wakes up four times and does not sleep → True after all of them.
    """
    polling = [pid for pid in pids if pid in first and pid in second and waits_for_device((first[pid], second[pid]))]
    pulses = {pid: _Pulses(pid, pulse) for pid in polling if (pulse := procfs.pulse(pid)) is not None}
    until = time.monotonic() + STEP_SECONDS
    while pulses and time.monotonic() < until:
        time.sleep(_PULSE_SECONDS)
        if any(each.goes_on() for each in pulses.values()):
            break
    return bool(polling)


class _Pulses:
    """The half seconds in which a process woke up, and for how long it has slept."""

    def __init__(self, pid: int, pulse: procfs.Pulse) -> None:
        self._pid = pid
        self._last = pulse
        self._began, self._awake = time.monotonic(), procfs.awake(pid)
        self._moments = 0

    def goes_on(self) -> bool:
        """True if the process has ended, or slept in more half seconds than one that waits."""
        now = procfs.pulse(self._pid)
        if now is None:
            return True
        self._moments += now.voluntary_switches > self._last.voluntary_switches
        self._last = now
        return self._moments > _MOST_MOMENTS and self._has_slept()

    def _has_slept(self) -> bool:
        awake = procfs.awake(self._pid)
        if awake is None or self._awake is None:
            return True
        return time.monotonic() - self._began - (awake - self._awake) > _SHORTEST_SLEEP
