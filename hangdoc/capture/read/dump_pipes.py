"""Ask a rank for the dump of its flight recorder, over the pipe that its user has had PyTorch set up for that.

With TORCH_NCCL_DEBUG_INFO_PIPE_FILE, each rank reads from ``<value><rank>.pipe``; any byte in it has the thread that
watches the watchdog write the dump within a second or so (DumpPipe in ProcessGroupNCCL.hpp, torch 2.15 and before; XCCL
and HCCL have copies of it, and variables of their own; nccl2 has none). It writes over a dump that lies there already,
so this is done only where somebody has asked for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import PurePath

from hangdoc.capture.safe.text import read_link, read_text

PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE")
"""NCCL's, XCCL's and HCCL's. A process has one of their pipes."""
_LOOK_ONLY = os.O_PATH | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ACCESS = 0o3
"""Of the flags in /proc/PID/fdinfo, which are octal: how the file was opened."""


def ask_for_dump(pid: int, rank: int, variables: Mapping[str, str]) -> str:
    """Write one byte to the process's own pipe. Returns why that could not be done, '' if it was.

    Never blocks, and never opens another file than a FIFO that the process itself reads from: it is found among the
    process's open files, not by its path.
    """
    prefixes = [variables[name] for name in PIPES if variables.get(name)]
    if not prefixes:
        return f"{PIPES[0]} is not set for it"
    names = [f"{PurePath(f'{prefix}{rank}').name}.pipe" for prefix in prefixes]
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - as in sockets
    except OSError as error:
        return f"its open files cannot be read: {error.strerror}"
    for descriptor in descriptors:
        link = f"/proc/{pid}/fd/{descriptor}"
        if PurePath(read_link(link) or "").name in names and _reads(pid, descriptor):
            return _write(link)
    return f"it has no pipe {' or '.join(names)} open"


def _reads(pid: int, descriptor: str) -> bool:
    """True if the process opened the file for reading only."""
    for line in (read_text(f"/proc/{pid}/fdinfo/{descriptor}", 4096) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "flags" and value.strip().isdigit():
            return int(value.strip(), 8) & _ACCESS == os.O_RDONLY
    return False


def _write(link: str) -> str:
    """Write to the FIFO that the process has open. It may open something else under that number at any moment: what was
    looked at is held, and nothing else is opened."""
    try:
        held = os.open(link, _LOOK_ONLY)
    except OSError as error:
        return error.strerror or type(error).__name__
    try:
        if not stat.S_ISFIFO(os.fstat(held).st_mode):
            return "what has the pipe's name is none"
        descriptor = os.open(f"/proc/self/fd/{held}", _WRITE)
    except OSError as error:
        return error.strerror or type(error).__name__
    finally:
        os.close(held)
    try:
        os.write(descriptor, b"1")
    except BlockingIOError:
        return "its pipe is full: nobody reads from it"
    except OSError as error:
        return error.strerror or type(error).__name__
    finally:
        os.close(descriptor)
    return ""
