"""Does a process wait for its device? Such a wait runs at full speed: CUDA polls the device in a loop.

Seen with torch 2.11, NCCL 2.28 and CUDA 13.0 on an H100: a rank in ``loss.item()`` or ``torch.cuda.synchronize()``
behind an all_reduce that never comes uses a whole core, and so does NCCL's own thread beside it, which has no Python
frame. Nothing else changes: not its line, not its variables, and no thread of it goes to sleep.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangdoc.model.process import ProcessState, Stack, Thread

_DEVICE_THREADS = ("cuda",)
"""Beginnings of the names of threads that a process has while it uses a device: cuda-EvtHandlr, cuda00001400006
(driver 580)."""
_WAITS = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)?(?:Synchronize|Memcpy|Launch)|_cuda\b|c10::(?:cuda|hip)::"
)
"""Native functions of such a wait: cuStreamSynchronize below item(), cuCtxSynchronize_v2 below
torch.cuda.synchronize(), cuMemcpyDtoHAsync_v2 below numpy(), cuLaunchKernel where the queue of launches is full (torch
2.11, driver 580; torch 1.12 to 2.7 in public stacks: pytorch issue 95944, returnn issue 1811)."""
WAKE_UPS_OF_A_WAIT = 2
"""How often the main thread may have gone to sleep between the looks, other tools that stop it counted; chosen by
hand. backward() alone puts it to sleep once in each step."""
STEP_SECONDS = 12.0
"""Looks so far apart see a wait, however often it woke up: whoever took them has made sure that it did not sleep
(``capture.read.device_patience``). Longer than most steps take, and than any between two points at which a rank sleeps
or comes to another line. Hosts have 30 s to answer. Judgement."""


def waits_for_device(looks: Sequence[ProcessState]) -> bool:
    """True if all looks show the main thread at one line with the same variables, running without the GIL, in a process
    that uses a device. A long computation of a library on the CPU may look the same where native frames are not at
    hand.

    Example: two looks, a second apart, at `print(loss.item())`, 0.99 s of CPU time, the GIL not held → True.
    """
    mains = [look.main for look in looks if look.main is not None and _runs_outside_python(look.main)]
    if len(looks) < 2 or len(mains) < len(looks) or not _uses_device(looks[-1]):
        return False
    first, last = mains[0], mains[-1]
    if last.native_frames and not shows_device_wait(last.native_frames):
        return False
    wake_ups = last.voluntary_switches - first.voluntary_switches
    seldom = wake_ups <= WAKE_UPS_OF_A_WAIT or looks[-1].at - looks[0].at >= STEP_SECONDS
    return first.frames == last.frames and seldom


def shows_device_wait(native_frames: Stack) -> bool:
    """True if C's frames are in a wait for the device: cuStreamSynchronize."""
    return any(_WAITS.search(frame.function) for frame in native_frames)


def _uses_device(look: ProcessState) -> bool:
    """True if the process has threads of a device's driver."""
    return any(thread.name.startswith(_DEVICE_THREADS) for thread in look.threads)


def _runs_outside_python(thread: Thread) -> bool:
    return thread.state == "R" and thread.owns_gil is False and bool(thread.frames)
