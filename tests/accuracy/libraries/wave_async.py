# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD101", "HD102", "HD508"]
# culprits = [2]
# lines = [61, 96, 97, 101, 113, 114, 129, 139]
# branch = ["index != sender", "not self.running.is_set()"]
# source = "https://github.com/vllm-project/vllm/pull/39366"
# ///
"""Data-parallel inference engines on asyncio, woken in waves by a coordinator on rank 0.

Engine 2 gets a request while all are idle and asks the coordinator for a new wave. The coordinator wakes all but the sender,
which was to wake itself and does not: the others wait for it in the step's all_reduce.
"""
import asyncio
import json
import logging
import socket
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("dp-engine")


@dataclass
class EngineConfig:
    hidden: int = 16
    idle_poll: float = 0.05
    arrivals: dict = field(default_factory=lambda: {0: [(0.3, 4)], 1: [(0.5, 3)], 2: [(3.5, 5)], 3: [(0.4, 6)]})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Coordinator:
    """Counts waves and tells the engines when one starts."""

    def __init__(self, world):
        self.world, self.peers, self.wave, self.ready = world, {}, 0, asyncio.Event()

    async def handle(self, reader, writer):
        index = json.loads(await reader.readline())["engine"]
        self.peers[index] = writer
        if len(self.peers) == self.world:
            await self.broadcast(None)
        while line := await reader.readline():
            message = json.loads(line)
            if message["wave"] >= self.wave:
                self.wave = message["wave"] + 1
                await self.broadcast(message["engine"])

    async def broadcast(self, sender):
        for index, writer in self.peers.items():
            if index != sender:
                writer.write(json.dumps({"wave": self.wave}).encode() + b"\n")
                await writer.drain()


class DPEngine:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        torch.manual_seed(0)
        self.weight = torch.randn(cfg.hidden, cfg.hidden)
        self.queue, self.wave, self.running, self.tokens = [], -1, asyncio.Event(), 0

    async def connect(self, port):
        while True:
            try:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(self.cfg.idle_poll)
        self.tell({"engine": self.rank})

    def tell(self, message):
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def listen(self):
        while line := await self.reader.readline():
            wave = json.loads(line)["wave"]
            if wave > self.wave:
                self.wave = wave
                self.running.set()

    async def clients(self):
        for delay, length in self.cfg.arrivals[self.rank]:
            await asyncio.sleep(delay)
            self.queue.append(length)
            if not self.running.is_set():
                self.tell({"engine": self.rank, "wave": self.wave})

    def forward(self):
        busy = torch.tensor([len(self.queue)])
        dist.all_reduce(busy)
        if self.queue:
            (torch.randn(1, self.cfg.hidden) @ self.weight).sum()
            self.tokens += 1
            self.queue[0] -= 1
            if self.queue[0] == 0:
                self.queue.pop(0)
        return int(busy)

    async def run(self):
        idle = 0
        while True:
            await self.running.wait()
            busy = self.forward()
            idle = 0 if busy else idle + 1
            if idle > 20:
                self.running.clear()
                idle = 0
                log.info("[engine %d] wave %d complete, %d tokens", self.rank, self.wave, self.tokens)
            await asyncio.sleep(self.cfg.idle_poll)


async def serve(cfg, rank, world, port):
    if rank == 0:
        coordinator = Coordinator(world)
        server = await asyncio.start_server(coordinator.handle, "127.0.0.1", port)
    engine = DPEngine(cfg, rank, world)
    await engine.connect(port)
    await asyncio.gather(engine.listen(), engine.clients(), engine.run())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [free_port() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    asyncio.run(serve(EngineConfig(), rank, world, box[0]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
