"""One rank of a world of one, with a process group, in a state (argv[1]) that forbids to run code in it."""

import ctypes
import os
import sys
import time

import torch.distributed as dist


def hold_lock():
    """A C function that sleeps with Python's global lock in its hands."""
    ctypes.PyDLL(None).sleep(600)


def uninterruptible():
    """The parent of a vfork is in state D until the child runs another program; this one opens a FIFO first."""
    fifo = sys.argv[2]
    os.mkfifo(fifo)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def run():
    """Never waits."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        pass


def ending():
    """Blocks in the C library's exit functions, with Python gone."""
    library = ctypes.CDLL(None)
    library.__cxa_atexit(ctypes.cast(library.pause, ctypes.c_void_p), None, None)


if sys.argv[1] != "no_group":
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
else:
    run = None
    hold_lock = None
print("ready", flush=True)
{
    "hold_lock": hold_lock,
    "uninterruptible": uninterruptible,
    "run": run,
    "ending": ending,
    "no_group": lambda: time.sleep(600),
    "sleep": lambda: time.sleep(600),
}[sys.argv[1]]()
