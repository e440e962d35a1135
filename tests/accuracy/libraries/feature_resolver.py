# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["aiohttp"]
# outcome = "hang"
# causes_any = ["HD505", "HD508"]
# culprits = [2]
# lines = [71, 74, 83, 94, 101]
# branch = ["name not in self.known"]
# source = "https://github.com/griptape-ai/griptape-nodes-engine/issues/4469"
# ///
import asyncio
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from aiohttp import ClientSession, web

log = logging.getLogger("features")


@dataclass
class Event:
    user: int
    feature: str
    value: float


class FeatureRegistryServer:
    """Tiny local registry: every process runs its own sidecar on a free port."""

    def __init__(self):
        self.runner = None
        self.port = 0

    async def _get(self, request):
        name = request.match_info["name"]
        return web.json_response({"name": name, "mean": float(len(name)), "std": 2.0})

    async def start(self):
        app = web.Application()
        app.router.add_get("/feature/{name}", self._get)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def stop(self):
        await self.runner.cleanup()


class Resolver:
    def __init__(self, port, preload):
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.known = dict(preload)

    async def _fetch(self, name):
        async with ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.port}/feature/{name}") as resp:
                return await resp.json()

    async def warm(self, names):
        for name in names:
            self.known[name] = await self._fetch(name)

    def spec(self, name):
        if name not in self.known:
            log.info("resolving %s", name)
            future = asyncio.run_coroutine_threadsafe(self._fetch(name), self.loop)
            self.known[name] = future.result()
        return self.known[name]


class Normalizer:
    def __init__(self, resolver):
        self.resolver = resolver

    def __call__(self, event):
        spec = self.resolver.spec(event.feature)
        return (event.value - spec["mean"]) / spec["std"]


class OnlineTrainer:
    def __init__(self, rank, normalizer):
        self.rank = rank
        self.normalizer = normalizer
        self.w = torch.zeros(4)

    def grad(self, window):
        xs = torch.tensor([self.normalizer(e) for e in window])
        feats = torch.stack([xs, xs**2, xs.abs(), torch.ones_like(xs)], dim=1)
        return (feats @ self.w - xs).unsqueeze(1).mul(feats).mean(0)

    async def step(self, window):
        g = self.grad(window)
        await asyncio.sleep(0)
        dist.all_reduce(g)
        self.w -= 0.01 * g / dist.get_world_size()


async def stream(rank, batches):
    common = ["clicks", "dwell", "scroll", "price"]
    rare = {0: [], 1: [(400, "clicks")], 2: [(61, "coupon_v2"), (90, "dwell")]}[rank % 3]
    special = dict(rare)
    n = 0
    for _ in range(batches):
        window = []
        for k in range(8):
            name = special.get(n, common[(n + k) % len(common)])
            window.append(Event(n, name, (n % 13) * 0.5))
            n += 1
        await asyncio.sleep(0.02)
        yield window


async def run(rank):
    server = FeatureRegistryServer()
    await server.start()
    resolver = Resolver(server.port, preload={})
    await resolver.warm(["clicks", "dwell", "scroll", "price"])
    trainer = OnlineTrainer(rank, Normalizer(resolver))
    step = 0
    async for window in stream(rank, batches=120):
        await trainer.step(window)
        step += 1
        if rank == 0 and step % 20 == 0:
            log.info("step %d |w|=%.4f", step, trainer.w.norm().item())
    await server.stop()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    asyncio.run(run(int(os.environ["RANK"])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
