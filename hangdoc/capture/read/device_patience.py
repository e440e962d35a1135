"""How long to look at ranks that wait for their devices: a training step may leave them so for some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from hangdoc.capture.read import procfs
from hangdoc.model.device_waits import WAKE_UPS_OF_A_WAIT, waits_for_device
from hangdoc.model.process import ProcessState

_STEP_SECONDS = 12.0
"""Longer than most steps take, and than any between two points at which a rank sleeps or comes to another line. Hosts
have 30 s to answer. Judgement."""
_PULSE_SECONDS = 0.5


def outlast_a_step(first: Mapping[int, ProcessState], second: Mapping[int, ProcessState], pids: Iterable[int]) -> bool:
    """Wait while processes of ``pids`` that wait for their devices stay so, some seconds at most; False at once if
    none does. After True the second look is out of date.

    Example: all ranks poll their devices; after 3 s one has slept and woken three times, as in backward() → True.
    """
    polling = [pid for pid in pids if pid in first and pid in second and waits_for_device((first[pid], second[pid]))]
    before = {pid: pulse for pid in polling if (pulse := procfs.pulse(pid)) is not None}
    until = time.monotonic() + _STEP_SECONDS
    while before and time.monotonic() < until:
        time.sleep(_PULSE_SECONDS)
        if any(_woke_up(pulse, procfs.pulse(pid)) for pid, pulse in before.items()):
            break
    return bool(polling)


def _woke_up(before: procfs.Pulse, now: procfs.Pulse | None) -> bool:
    return now is None or now.voluntary_switches - before.voluntary_switches > WAKE_UPS_OF_A_WAIT
