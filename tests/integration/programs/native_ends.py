"""Ranks that end by native code, each forked from this process: ``native_ends.py FOLDER``. What one writes to stderr is
in FOLDER/MODE.err, how each ended in FOLDER/ended.json: {MODE: [pid, wait status]}."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from torch.utils.data import DataLoader

FOLDER = Path(sys.argv[1])
PROBED = os.environ.get("HANGDOC_PROBE")
PATIENCE = 60.0
USUAL = 1000
"""A descriptor's number where there is no probe whose own would be meant."""


def say(*words: object) -> None:
    os.write(2, f"{' '.join(map(str, words))}\n".encode())


def crash() -> None:
    ctypes.string_at(0)


def join() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def until(name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (FOLDER / name).exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def plain() -> None:
    join()
    crash()


def aborts() -> None:
    join()
    os.abort()


def enabled_before() -> None:
    faulthandler.enable(all_threads=False)
    join()
    crash()


def enables_later() -> None:
    join()
    faulthandler.enable(all_threads=False)
    crash()


def asks_first() -> None:
    join()
    say(faulthandler.is_enabled(), faulthandler.disable(), faulthandler.is_enabled())
    if not faulthandler.is_enabled():
        faulthandler.enable(all_threads=False)
    say(faulthandler.is_enabled(), faulthandler.enable.__name__, faulthandler.enable.__module__)
    crash()


def enables_and_disables() -> None:
    join()
    with (FOLDER / "own").open("w") as own:
        faulthandler.enable(own)
        say(faulthandler.disable(), faulthandler.is_enabled())
        crash()


def fails_to_enable() -> None:
    join()
    try:
        faulthandler.enable(object())  # type: ignore[arg-type]
    except Exception as error:
        say(type(error).__name__, faulthandler.is_enabled())
    crash()


def handled(number: int, _frame: object) -> None:
    say("handled", number)
    os._exit(3)


def handles_before() -> None:
    signal.signal(signal.SIGSEGV, handled)
    join()
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(PATIENCE)


def handles_later() -> None:
    join()
    say(signal.signal(signal.SIGSEGV, handled))
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(PATIENCE)


def native_handler() -> None:
    join()
    library = ctypes.CDLL(None)
    library.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    library.signal(int(signal.SIGSEGV), ctypes.cast(library._exit, ctypes.c_void_p))
    crash()


def in_child(what: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        what()
        os._exit(0)
    say("child", os.waitpid(child, 0)[1])


def child_crashes() -> None:
    join()
    in_child(crash)


def both_end() -> None:
    join()
    in_child(os.abort)
    os.abort()


def child_enables() -> None:
    def enables() -> None:
        say(faulthandler.is_enabled())
        faulthandler.enable(all_threads=False)
        crash()

    join()
    in_child(enables)


class Broken:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        crash()
        return index


def worker_crashes() -> None:
    join()
    try:
        list(DataLoader(Broken(), num_workers=1, multiprocessing_context="fork"))  # type: ignore[arg-type]
    except RuntimeError as error:
        say(str(error).rpartition(": ")[2])


def closes_all() -> None:
    dist.HashStore()  # a rank already, without gloo's threads: these abort when their descriptors are closed
    os.closerange(3, 65536)
    with (FOLDER / "reused").open("wb", buffering=0) as own:
        say(own.fileno())
        crash()


def reuses_the_number() -> None:
    dist.HashStore()
    own = [number for number in map(int, os.listdir("/proc/self/fd")) if is_ours(number)]
    (FOLDER / "joined").touch()
    until("connected")
    os.closerange(3, 65536)
    with (FOLDER / "taken").open("wb", buffering=0) as file:
        os.dup2(file.fileno(), own[0] if own else USUAL)
        (FOLDER / "closed").touch()
        until("asked")
        crash()


def is_ours(number: int) -> bool:
    try:
        return number > 100 and os.readlink(f"/proc/self/fd/{number}").endswith(".fault")
    except OSError:
        return False


def ask_meanwhile(pid: int) -> None:
    """What a watch does every second."""
    until("joined")
    with socket.socket(socket.AF_UNIX) as asking:
        if PROBED:
            asking.connect(f"{PROBED}/{pid}.sock")
            asking.sendall(b'{"q": "counters"}\n')
            asking.recv(1 << 16)
        (FOLDER / "connected").touch()
        until("closed")
        if PROBED:
            with contextlib.suppress(ConnectionError):  # its other end may be gone already
                asking.sendall(b'{"q": "counters"}\n')
                while asking.recv(1 << 16):  # until it is closed
                    pass
    (FOLDER / "asked").touch()


def under_pytest() -> None:
    import pytest

    join()
    test = FOLDER / "test_crashes.py"
    test.write_text("import ctypes\n\ndef test_crashes():\n    ctypes.string_at(0)\n")
    pytest.main(["-q", "-p", "no:cacheprovider", str(test)])


MODES = [
    plain,
    aborts,
    enabled_before,
    enables_later,
    asks_first,
    enables_and_disables,
    fails_to_enable,
    handles_before,
    handles_later,
    native_handler,
    child_crashes,
    both_end,
    child_enables,
    worker_crashes,
    closes_all,
    reuses_the_number,
    under_pytest,
]


def run(mode: Callable[[], None]) -> tuple[int, int]:
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(FOLDER / f"{mode.__name__}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            mode()
            sys.stderr.flush()
        finally:
            os._exit(0)
    if mode is reuses_the_number:
        ask_meanwhile(pid)
    return pid, os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ended = {mode.__name__: run(mode) for mode in MODES}
    (FOLDER / "ended.json").write_text(json.dumps(ended))
