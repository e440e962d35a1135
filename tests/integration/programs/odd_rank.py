"""Ranks of a world of one, with a process group, in states that forbid to run code in them.

For each line on standard input, a state and the path of a FIFO, one is forked, which says its process id once it is
ready.
"""

import ctypes
import os
import signal
import time

import torch.distributed as dist


def hold_lock():
    """A C function that sleeps with Python's global lock in its hands."""
    ctypes.PyDLL(None).sleep(600)


def uninterruptible():
    """The parent of a vfork is in state D until the child runs another program; this one opens a FIFO first."""
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


signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
while line := os.read(0, 4096).decode():
    state, fifo = line.rstrip("\n").split(" ", 1)
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        break
else:
    os._exit(0)

if state != "no_group":
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
else:
    run = None
    hold_lock = None
print(os.getpid(), flush=True)
{
    "hold_lock": hold_lock,
    "uninterruptible": uninterruptible,
    "run": run,
    "ending": ending,
    "no_group": lambda: time.sleep(600),
    "sleep": lambda: time.sleep(600),
}[state]()
