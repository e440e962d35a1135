"""A job for the probe's tests: ``probed.py MODE``. Every mode prints ``ready`` where it stops, or ends by itself."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
import time

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self) -> None:
        self.warm = True
        self.token = "hunter2"
        self.epochs = 3
        self.layers = [1, 2]

    @property
    def trap(self) -> None:
        raise RuntimeError("user code ran")

    def __getattr__(self, name: str) -> None:
        raise RuntimeError("user code ran")

    def wait(self) -> None:
        say("ready")
        while self.warm and self.token and self.epochs and self.layers:
            time.sleep(0.2)


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())  # whole, whoever else writes


def everything() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    pair = dist.new_group([0, 1], group_desc="the pair")
    dist.barrier(pair)
    if rank == 0:
        dist.send(torch.ones(1), 1, tag=7)
        dist.recv(torch.ones(1))
    else:
        dist.recv(torch.ones(1), 0, tag=7)
        dist.send(torch.ones(1), 0)
    dist.monitored_barrier()
    dist.all_reduce(torch.ones(2, 3))
    if rank == 0:
        say("ready")
        dist.recv(torch.ones(1), 1)
    else:
        Trainer().wait()


def alone_in_store() -> None:
    """The other rank never comes."""
    say("ready")
    dist.init_process_group("gloo")


def key_never_set() -> None:
    dist.init_process_group("gloo")
    say("ready")
    dist.distributed_c10d._get_default_store().get("never")


def destroyed() -> None:
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    dist.send(torch.ones(1), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(1), 0)
    dist.barrier()
    dist.destroy_process_group()


def raises() -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        raise LookupError("no such sample; password=hunter2")


def no_recorder() -> None:
    native = torch._C._distributed_c10d
    for name in ("_dump_fr_trace", "_dump_fr_trace_json"):
        if hasattr(native, name):
            delattr(native, name)
    everything()


def compiled() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    @torch.compile(backend="eager")
    def exchange(value: torch.Tensor) -> torch.Tensor:
        value = value + 1
        if rank == 0:
            dist.send(value, 1)
        else:
            dist.recv(value, 0)
        return value * 2

    for _ in range(3):
        assert exchange(torch.ones(2)).tolist() == [4, 4]
    dist.barrier()


class Cycle:
    """Garbage whose finalizer tells whose thread it runs in."""

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            say("finalized-elsewhere")


def finalizes() -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    gc.collect()
    gc.disable()
    for _ in range(2000):
        Cycle()
    say("ready")
    # Fifty more objects and it is collected: more than a bare wake-up of the probe makes, less than its answers.
    gc.set_threshold(gc.get_count()[0] + 50)
    gc.enable()
    time.sleep(1000)


def holds_gil() -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    say("ready")
    ctypes.PyDLL(None).usleep(100_000_000)


def forks() -> None:
    """Children of a rank are no ranks: a plain fork that exits through Python, and DataLoader workers."""
    dist.init_process_group("gloo")
    dist.barrier()
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # a whole exit would join gloo's threads, which a fork leaves behind
        os._exit(0)
    os.waitpid(child, 0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(4.0)), num_workers=1)
    workers = iter(loader)
    next(workers)
    say("ready")
    Trainer().wait()


def own_store() -> None:
    """A user's own store, made before any group and without any of torch's frames."""
    rank = int(sys.argv[2])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    dist.barrier()


def threaded_subclass() -> None:
    """A Python subclass of ProcessGroup that overrides nothing: pybind must not take our hooks for overrides."""

    class Mine(dist.ProcessGroup):
        pass

    store = dist.HashStore()
    group = Mine(0, 1)
    for call in (lambda: group.send([torch.ones(1)], 0, 0), lambda: dist.Store.get(store, "x")):
        if call.__code__.co_names[0] == "dist":
            store.set("x", "1")
            assert call() == b"1"
            continue
        try:
            call()
        except RuntimeError as error:
            say(f"refused: {type(error).__name__}")


if __name__ == "__main__":
    {name: value for name, value in globals().items() if callable(value)}[sys.argv[1]]()
    say("end")
