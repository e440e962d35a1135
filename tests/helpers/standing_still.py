"""When processes that are about to hang do."""

from __future__ import annotations

import time
from collections.abc import Iterable

from hangdoc.capture.read import procfs

_LITTLE = 0.05
"""Seconds of processor time that threads of a library may take meanwhile, as the heartbeats of a store do."""


def wait_until_still(pids: Iterable[int], seconds: float = 1.0, patience: float = 90.0) -> None:
    """Until the processes have used no processor time worth the name for so many seconds."""
    watched = [*pids]
    used: dict[int, float] = {}
    deadline = time.monotonic() + patience
    since = time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < deadline, f"{watched} still move"
        now = {pid: pulse.cpu for pid in watched if (pulse := procfs.pulse(pid)) is not None}
        if any(cpu - used.get(pid, 0.0) > _LITTLE for pid, cpu in now.items()):
            used, since = now, time.monotonic()
        time.sleep(0.05)
