"""How long to look at ranks that wait for their devices: a training step may leave them so for some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from hangdoc.capture.read import procfs
from hangdoc.model.device_waits import STEP_SECONDS, waits_for_device
from hangdoc.model.process import ProcessState

_PULSE_SECONDS = 0.5
_MOST_MOMENTS = 2
"""In so many half seconds a rank that waits may wake up. Three of 15 frozen jobs that shared an H100 woke up three or
four times at one moment, when another job began or ended."""


def outlast_a_step(first: Mapping[int, ProcessState], second: Mapping[int, ProcessState], pids: Iterable[int]) -> bool:
    """Wait while processes of ``pids`` that wait for their devices stay so, some seconds at most; False at once if
    none does. After True the second look is out of date.

    Examples: all ranks poll their devices, and one wakes up in three half seconds, as in backward() → True after the
    third of them; one wakes up four times within half a second → True after all of them.
    """
    polling = [pid for pid in pids if pid in first and pid in second and waits_for_device((first[pid], second[pid]))]
    seen = {pid: pulse for pid in polling if (pulse := procfs.pulse(pid)) is not None}
    moments = dict.fromkeys(seen, 0)
    until = time.monotonic() + STEP_SECONDS
    while seen and time.monotonic() < until:
        time.sleep(_PULSE_SECONDS)
        for pid, before in list(seen.items()):
            now = procfs.pulse(pid)
            if now is None:
                return True
            moments[pid] += now.voluntary_switches > before.voluntary_switches
            seen[pid] = now
        if any(count > _MOST_MOMENTS for count in moments.values()):
            break
    return bool(polling)
