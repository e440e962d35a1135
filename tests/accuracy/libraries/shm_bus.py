# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD508", "HD103"]
# culprits = [3]
# lines = [44, 45, 55, 57, 58, 83, 110, 96, 54, 108, 109, 75]
# branch = ["self.read_flags[slot]", "self.read_flags[slot, reader]", "FETCHED[index]"]
# watch = "--give-up-after 8"
# source = "https://github.com/vllm-project/vllm/pull/45224"
# ///
"""A driver hands scheduler outputs to its workers through a ring of shared-memory slots; workers answer by all-reduce."""
import json
import logging
import time
from contextlib import contextmanager
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("bus")
SLOTS, SLOT_BYTES, FETCHED = 4, 4096, ("2026-04", "2026-04", "2026-01")


class Ring:
    """One writer, several readers. A slot is free again once every reader has acknowledged it."""

    def __init__(self, readers: int, name: str | None = None):
        size = SLOTS * (SLOT_BYTES + 8 + readers)
        self.owner = name is None
        self.shm = shared_memory.SharedMemory(name=name, create=self.owner, size=size)
        raw = np.ndarray((size,), np.uint8, self.shm.buf)
        self.data = raw[: SLOTS * SLOT_BYTES].reshape(SLOTS, SLOT_BYTES)
        self.length = raw[SLOTS * SLOT_BYTES : SLOTS * (SLOT_BYTES + 8)].view(np.int64)
        self.read_flags = raw[SLOTS * (SLOT_BYTES + 8) :].reshape(SLOTS, readers)
        if self.owner:
            self.read_flags[:] = 1
        self.turn = 0

    def put(self, message: dict) -> None:
        slot, blob = self.turn % SLOTS, json.dumps(message).encode()
        while not self.read_flags[slot].all():
            time.sleep(0.001)
        self.data[slot, : len(blob)] = np.frombuffer(blob, np.uint8)
        self.length[slot] = len(blob)
        self.read_flags[slot] = 0
        self.turn += 1

    @contextmanager
    def reading(self, reader: int):
        slot = self.turn % SLOTS
        while self.read_flags[slot, reader]:
            time.sleep(0.001)
        try:
            yield bytes(self.data[slot, : self.length[slot]])
            self.read_flags[slot, reader] = 1
        finally:
            self.turn += 1

    def close(self) -> None:
        del self.data, self.length, self.read_flags
        self.shm.close()
        if self.owner:
            self.shm.unlink()


class Worker:
    """A worker's share of the model; adapters are loaded when a request names one."""

    def __init__(self, index: int):
        self.index = index
        self.adapters = {"base": 1.0, "sql": 0.5}
        if FETCHED[index] > "2026-02":  # when the host last fetched adapters
            self.adapters["chat"] = 0.25
        self.seen = 0

    def execute(self, blob: bytes) -> bool:
        message = json.loads(blob)
        if message["kind"] == "stop":
            return False
        scale = [self.adapters[name] for name in message["adapters"]]
        out = torch.tensor(scale).sum() * message["tokens"]
        if message["reply"]:
            dist.reduce(out, dst=0)
        self.seen += 1
        return True


def drive(ring: Ring, steps: int) -> None:
    rng = np.random.default_rng(5)
    for step in range(steps):
        names = rng.choice(["base", "sql"], size=3).tolist() + (["chat"] if step == 37 else [])
        message = {"kind": "step", "adapters": names, "tokens": int(rng.integers(1, 9)), "reply": step % 30 == 0}
        ring.put(message)
        if message["reply"]:
            out = torch.zeros(())
            dist.reduce(out, dst=0)
            log.info("step %d: %.2f", step, out.item())
    ring.put({"kind": "stop"})


def serve(ring: Ring, worker: Worker) -> None:
    running = True
    while running:
        try:
            with ring.reading(worker.index) as blob:
                running = worker.execute(blob)
        except KeyError as exc:
            log.warning("worker %d: adapter %s is not loaded, request ignored", worker.index, exc)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank, readers = dist.get_rank(), dist.get_world_size() - 1
    name = [None]
    if rank == 0:
        ring = Ring(readers)
        name = [ring.shm.name]
    dist.broadcast_object_list(name, src=0)
    if rank == 0:
        drive(ring, steps=400)
    else:
        ring = Ring(readers, name[0])
        serve(ring, Worker(rank - 1))
    dist.barrier()
    ring.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
