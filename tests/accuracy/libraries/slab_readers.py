# /// hangdoc
# launch = "python"
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD505", "HD504", "HD509", "HD507"]
# culprits = [1]
# lines = [41, 69, 71, 75, 77, 88]
# branch = ["self.patience", "self.link.poll("]
# source = "https://github.com/birdnet-team/birdnet/issues/73"
# ///
"""Each rank reads recordings through a helper process; all helpers of the node decode into one shared slab, guarded by a lock."""
import logging
import multiprocessing
import os
import socket
import zlib
from multiprocessing import shared_memory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

log = logging.getLogger("readers")
WORLD = 3
SLAB = 1 << 16
LENGTHS = {0: (5, 5, 6, 5), 1: (5, 6, 4000, 5), 2: (6, 5, 5, 6)}   # seconds of the recordings, by rank


def decode(seconds: int) -> bytes:
    block, data = os.urandom(1 << 18), b""
    for _ in range(max(1, seconds // 5)):
        data = zlib.compress(block, 9)
    return data[:SLAB]


def helper(recordings, link, slab_name: str, slab_lock):
    slab = shared_memory.SharedMemory(slab_name)
    link.send("ready")
    for seconds in recordings:
        link.recv()
        with slab_lock:
            data = decode(seconds)
            slab.buf[: len(data)] = data
            summary = zlib.crc32(bytes(slab.buf[: len(data)]))
        link.send((seconds, summary))
    slab.close()


class Reader:
    """Runs the helper and replaces it when it has been silent for too long."""

    def __init__(self, recordings, slab_name: str, slab_lock, patience: float = 3.0):
        self.todo = list(recordings)
        self.slab_name, self.slab_lock, self.patience = slab_name, slab_lock, patience
        self.replaced = 0
        self._start()

    def _start(self):
        context = multiprocessing.get_context("fork")
        self.link, far_end = context.Pipe()
        self.process = context.Process(
            target=helper, args=(self.todo, far_end, self.slab_name, self.slab_lock), daemon=True)
        self.process.start()
        far_end.close()
        self.link.recv()

    def next(self) -> float:
        self.link.send("next")
        if self.replaced == 0 and not self.link.poll(self.patience):
            log.warning("helper %d is silent, replacing it and skipping a recording", self.process.pid)
            self.process.terminate()
            self.process.join()
            self.replaced += 1
            self.todo.pop(0)
            self._start()
            self.link.send("next")
        seconds, summary = self.link.recv()
        self.todo.pop(0)
        return summary % 1000 / seconds


def worker(rank: int, port: int, slab_name: str, slab_lock):
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    reader = Reader(LENGTHS[rank], slab_name, slab_lock)
    weight = torch.zeros(1)
    for step in range(3):
        gradient = torch.tensor([reader.next()])
        dist.all_reduce(gradient)
        weight -= 1e-3 * gradient
        log.info("step %d weight %.4f", step, weight.item())
    dist.barrier()
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    slab = shared_memory.SharedMemory(create=True, size=SLAB)
    lock = mp.get_context("spawn").Lock()
    try:
        mp.spawn(worker, args=(free_port(), slab.name, lock), nprocs=WORLD)
    finally:
        slab.close()
        slab.unlink()


if __name__ == "__main__":
    main()
