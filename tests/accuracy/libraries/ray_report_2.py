# /// hangdoc
# watch = "--give-up-after 8"
# launch = "python"
# requires = ["ray"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# culprits_any = [[1], [0]]
# lines = [61, 97, 106, 110, 112, 113]
# branch = ["value < self.best - self.min_delta", "self.tracker.improved(val)"]
# source = "https://github.com/ray-project/ray/pull/50874"
# ///
"""Two Ray actors train together; improvements are reported through a meeting actor."""
import asyncio
import logging
import os
import socket
import tempfile
from datetime import timedelta

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import ray
import torch
import torch.distributed as dist

log = logging.getLogger("worker")


@ray.remote(num_cpus=0)
class ReportBoard:
    """Takes one report per worker and lets everybody go on when the round is complete."""

    def __init__(self, world: int):
        self.world = world
        self.round = 0
        self.entries = {}
        self.cond = asyncio.Condition()
        self.history = []

    async def report(self, rank: int, metrics: dict) -> int:
        async with self.cond:
            mine = self.round
            self.entries[rank] = metrics
            if len(self.entries) == self.world:
                self.history.append(dict(self.entries))
                self.entries.clear()
                self.round += 1
                self.cond.notify_all()
            else:
                await self.cond.wait_for(lambda: self.round > mine)
            return self.round


class BestTracker:
    def __init__(self, min_delta: float):
        self.best = float("inf")
        self.min_delta = min_delta

    def improved(self, value: float) -> bool:
        if value < self.best - self.min_delta:
            self.best = value
            return True
        return False


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, rank: int, config: dict, board):
        os.environ["RANK"] = str(rank)
        self.rank, self.cfg, self.board = rank, config, board
        dist.init_process_group(
            "gloo", init_method=config["rendezvous"], rank=rank,
            world_size=len(config["regions"]), timeout=timedelta(hours=2),
        )
        gen = torch.Generator().manual_seed(5)
        self.x = torch.randn(64, 6, generator=gen)
        self.y = self.x.sum(1, keepdim=True)
        self.net = torch.nn.Linear(6, 1)
        for p in self.net.parameters():
            torch.nn.init.zeros_(p)
        self.val = self._validation_slice()
        self.tracker = BestTracker(config["min_delta"])

    def _validation_slice(self):
        gen = torch.Generator().manual_seed(40 + self.rank)
        x = torch.randn(24, 6, generator=gen)
        sign = -1.0 if self.cfg["regions"][self.rank] == "south" else 1.0
        return x, sign * x.sum(1, keepdim=True)

    def train_epoch(self) -> None:
        for chunk in range(0, 64, 16):
            loss = (self.net(self.x[chunk:chunk + 16]) - self.y[chunk:chunk + 16]).square().mean()
            self.net.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
                p.data.add_(p.grad, alpha=-self.cfg["lr"] / dist.get_world_size())

    def validate(self) -> float:
        x, y = self.val
        with torch.no_grad():
            return (self.net(x) - y).square().mean().item()

    def publish(self, epoch: int, val: float) -> int:
        return ray.get(self.board.report.remote(self.rank, {"epoch": epoch, "val": val}))

    def run(self) -> float:
        for epoch in range(self.cfg["epochs"]):
            self.train_epoch()
            val = self.validate()
            if self.tracker.improved(val):
                self.publish(epoch, val)
            print(f"worker {self.rank} epoch {epoch} val {val:.3f}", flush=True)
        return self.tracker.best


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2 ** 20, _temp_dir=tempfile.mkdtemp(prefix="r", dir="/tmp"))
    config = {
        "epochs": 8, "lr": 0.05, "min_delta": 1e-4, "regions": ["north", "south"],
        "rendezvous": f"tcp://127.0.0.1:{free_port()}",
    }
    board = ReportBoard.remote(len(config["regions"]))
    workers = [Worker.remote(rank, config, board) for rank in range(len(config["regions"]))]
    print(ray.get([w.run.remote() for w in workers]))
    ray.shutdown()


if __name__ == "__main__":
    main()
