# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["aiohttp", "requests"]
# outcome = "healthy"
# causes_any = []
# culprits = []
# lines = []
# watch = "--give-up-after 10"
# source = "constructed"
# ///
"""Training with an evaluation service: rank 2 runs an HTTP service on an event loop in a thread; the others post their weights and get the answer late."""
import asyncio
import logging
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import requests
import torch
import torch.distributed as dist
from aiohttp import web

log = logging.getLogger("service")
SERVICE_RANK = 2


def evaluate(weights: list, seconds: float) -> float:
    """Runs in a process of its own, on the CPU for the whole time."""
    total, count, end = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for w in weights:
            total += (w - count % 7) ** 2 % 1.0
        count += 1
    return total / max(1, count)


class EvaluationService:
    def __init__(self, seconds: float):
        self.seconds = seconds
        self.pool = ProcessPoolExecutor(max_workers=1)
        self.port = None
        self.ready = threading.Event()
        self.stopping = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()), name="service")

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        loop = asyncio.get_running_loop()
        score = await loop.run_in_executor(self.pool, evaluate, body["weights"], self.seconds)
        return web.json_response({"score": score, "step": body["step"]})

    async def serve(self):
        self.stopping = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        app = web.Application()
        app.router.add_post("/evaluate", self.handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.stopping.wait()
        await runner.cleanup()

    def start(self) -> int:
        self.pool.submit(evaluate, [0.0], 0.1).result()
        self.thread.start()
        self.ready.wait()
        return self.port

    def stop(self):
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()
        self.pool.shutdown()


def train_step(weights: torch.Tensor) -> torch.Tensor:
    gradient = torch.randn(64)
    dist.all_reduce(gradient)
    return weights - 1e-2 * gradient


def ask(port: int, weights: torch.Tensor, step: int) -> float:
    answer = requests.post(f"http://127.0.0.1:{port}/evaluate", json={"weights": weights.tolist(), "step": step})
    return answer.json()["score"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    service = EvaluationService(seconds=16.0) if rank == SERVICE_RANK else None
    port = torch.tensor([service.start() if service else 0])
    dist.broadcast(port, src=SERVICE_RANK)
    torch.manual_seed(rank)
    weights = torch.zeros(64)
    for step in range(1, 61):
        weights = train_step(weights)
        if step == 40 and rank == 0:
            log.info("step %d score %.4f", step, ask(int(port), weights, step))
    dist.barrier()
    if service:
        service.stop()
    log.info("norm %.3f", weights.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
