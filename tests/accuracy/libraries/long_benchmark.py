# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "healthy"
# ///
"""Train with accelerate; the main process compares many seeds while the others wait for its marker."""
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("bench")


@dataclass
class Plan:
    rounds: int = 2
    steps: int = 25
    bench_seconds: float = 9.0
    poll: float = 0.5


class Marker:
    """A file that tells how far the benchmark of a round has come."""

    def __init__(self, folder, number):
        self.path = Path(folder) / f"round{number}.json"

    def write(self, values):
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(values))
        partial.replace(self.path)

    def wait(self, poll):
        while not self.path.exists():
            time.sleep(poll)
        return json.loads(self.path.read_text())


class Benchmark:
    def __init__(self, seconds):
        self.seconds = seconds

    @torch.no_grad()
    def run(self, model):
        began, scores = time.monotonic(), []
        while time.monotonic() - began < self.seconds:
            g = torch.Generator().manual_seed(len(scores))
            x = torch.randn(512, 10, generator=g)
            scores.append(nn.functional.mse_loss(model(x), x[:, :1]).item())
            time.sleep(0.01)
        return {"seeds": len(scores), "mse": sum(scores) / len(scores)}


def train(accelerator, model, optimizer, loader, steps):
    batches = iter(loader)
    for _ in range(steps):
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return accelerator.gather(loss.detach()).mean().item()


def main():
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    plan = Plan()
    folder = Path(tempfile.gettempdir()) / f"bench-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    x = torch.randn(600, 10)
    model = nn.Linear(10, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.05), DataLoader(TensorDataset(x, x[:, :1]), batch_size=10))
    for number in range(plan.rounds):
        loss = train(accelerator, model, optimizer, loader, plan.steps)
        marker = Marker(folder, number)
        if accelerator.is_main_process:
            marker.write(Benchmark(plan.bench_seconds).run(accelerator.unwrap_model(model)))
        scores = marker.wait(plan.poll)
        agreed = broadcast_object_list([scores])[0]
        log.info("round %d loss %.4f benchmark %s", number, loss, agreed)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
