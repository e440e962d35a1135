# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["aiohttp", "requests"]
# outcome = "hang"
# causes_any = ["HD507", "HD505"]
# culprits = [0]
# culprits_any = [[2]]
# lines = [41, 42, 60, 70, 72, 91, 92, 112]
# branch = ["rows < self.quota", "len(self.served)"]
# source = "https://github.com/sgl-project/sglang/issues/4663"
# ///
"""Rank 0 hands out data shards over HTTP and takes part in the training from the same event loop; the other ranks fetch shards and train."""
import asyncio
import hashlib
import logging
import os

import requests
import torch
import torch.distributed as dist
from aiohttp import web

log = logging.getLogger("dispatch")
ROWS_IN_SHARD = (900, 700, 950, 300, 650, 800, 900, 750)


class Dispatcher:
    """Serves /shard; a round of training starts when every trainer has been served."""

    def __init__(self, trainers: int):
        self.trainers = trainers
        self.cursor = 0
        self.served = set()
        self.everyone_served = asyncio.Event()

    async def shard(self, request: web.Request) -> web.Response:
        trainer = int(request.query["trainer"])
        number = self.cursor % len(ROWS_IN_SHARD)
        self.cursor += 1
        self.served.add(trainer)
        if len(self.served) == self.trainers:
            self.everyone_served.set()
        return web.json_response({"shard": number, "rows": ROWS_IN_SHARD[number]})

    async def listen(self) -> int:
        app = web.Application()
        app.router.add_get("/shard", self.shard)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site._server.sockets[0].getsockname()[1]

    def next_round(self):
        self.served.clear()
        self.everyone_served.clear()


def average(weights: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(weights)
    return weights / dist.get_world_size()


async def coordinate(rounds: int, trainers: int):
    dispatcher = Dispatcher(trainers)
    port = await dispatcher.listen()
    dist.broadcast(torch.tensor([port]), src=0)
    weights = torch.zeros(32)
    for number in range(rounds):
        await dispatcher.everyone_served.wait()
        dispatcher.next_round()
        weights = average(weights)
        log.info("round %d finished", number)
        await asyncio.sleep(0.05)


class Trainer:
    def __init__(self, rank: int, port: int, quota: int = 600):
        self.rank, self.quota = rank, quota
        self.url = f"http://127.0.0.1:{port}/shard"
        self.session = requests.Session()

    def verify_local_copy(self, megabytes: int):
        digest = hashlib.sha256()
        for _ in range(megabytes):
            digest.update(os.urandom(1 << 20))
        log.info("local copy verified: %s", digest.hexdigest()[:8])

    def fetch(self) -> int:
        rows = 0
        while rows < self.quota:
            answer = self.session.get(self.url, params={"trainer": self.rank}).json()
            rows += answer["rows"]
            log.info("shard %d gives %d rows", answer["shard"], rows)
        return rows

    def run(self, rounds: int):
        weights = torch.zeros(32)
        for _ in range(rounds):
            # a slower volume needs its copy checked before every round
            self.verify_local_copy(150 * (self.rank - 1))
            rows = self.fetch()
            weights = average(weights + torch.randn(32) / rows)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    rounds = 4
    if rank == 0:
        asyncio.run(coordinate(rounds, world - 1))
    else:
        port = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(port, src=0)
        Trainer(rank, int(port), quota=600).run(rounds)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
