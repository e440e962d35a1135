# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD701"]
# culprits = [2]
# lines = [42, 47, 83, 90, 91, 92, 110]
# branch = ["self.best_step is None", "score < self.best"]
# source = "https://github.com/nvidia-cosmos/cosmos-rl/pull/54"
# ///
"""Population training: every rank trains its own variant, shares its score each round, and pushes its artifacts from an upload thread."""
import json
import logging
import os
import queue
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("population")

VARIANTS = [
    {"lr": 0.05, "momentum": 0.0},
    {"lr": 0.02, "momentum": 0.9},
    {"lr": 9.0, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.5},
]


class ArtifactUploader:
    """Copies files into the registry, one at a time, in the order they were queued."""

    def __init__(self, registry):
        self.registry = registry
        self.registry.mkdir(parents=True, exist_ok=True)
        self.jobs = queue.Queue()
        self.thread = threading.Thread(target=self._loop, name="uploader")
        self.thread.start()

    def _loop(self):
        while True:
            job = self.jobs.get()
            if job is None:
                return
            name, payload = job
            (self.registry / name).write_bytes(payload)

    def push(self, name, payload):
        self.jobs.put((name, payload))

    def finish(self):
        self.jobs.put(None)
        self.thread.join()


class Variant:
    def __init__(self, rank, uploader):
        self.rank, self.uploader = rank, uploader
        torch.manual_seed(rank)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))
        self.settings = VARIANTS[rank % len(VARIANTS)]
        self.velocity = [torch.zeros_like(p) for p in self.net.parameters()]
        gen = torch.Generator().manual_seed(0)
        self.x = torch.randn(256, 6, generator=gen)
        self.y = (self.x[:, :2].prod(1, keepdim=True) + 0.1 * self.x[:, 2:3])
        self.baseline = self.y.pow(2).mean().item()
        self.best, self.best_step = self.baseline, None

    def round(self, number, steps=25):
        for _ in range(steps):
            loss = torch.nn.functional.mse_loss(self.net(self.x), self.y)
            self.net.zero_grad()
            loss.backward()
            for p, v in zip(self.net.parameters(), self.velocity):
                v.mul_(self.settings["momentum"]).add_(p.grad)
                p.data.sub_(v, alpha=self.settings["lr"])
        score = loss.item()
        if score < self.best:
            self.best, self.best_step = score, number
            blob = json.dumps({k: v.tolist() for k, v in self.net.state_dict().items()}).encode()
            self.uploader.push(f"variant{self.rank}-round{number}.json", blob)
        return score

    def close(self):
        if self.best_step is None:
            log.info("nothing to publish, best stays %.4f", self.best)
            return
        card = {"variant": self.rank, "best": self.best, "round": self.best_step}
        self.uploader.push(f"variant{self.rank}-card.json", json.dumps(card).encode())
        self.uploader.finish()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s v{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    registry = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "registry"
    variant = Variant(rank, ArtifactUploader(registry))
    for number in range(8):
        mine = torch.tensor([variant.round(number)])
        board = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(board, mine)
        if rank == 0:
            log.info("round %d scores %s", number, [round(float(b), 4) for b in board])
    variant.close()
    dist.barrier()
    dist.destroy_process_group()
    log.info("bye")


if __name__ == "__main__":
    main()
