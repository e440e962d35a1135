# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD505", "HD508", "HD103"]
# culprits = [1]
# lines = [88, 57, 74, 52, 76, 70, 44]
# source = "https://github.com/huggingface/trl/pull/5656"
# ///
"""Policy-gradient training whose rollouts are scored by a background thread and handed over through a bounded queue."""
import logging
import queue
import re
import threading
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("feed")
ANSWER = re.compile(r"answer\s*[:=]\s*(-?\d+)")
TASKS = {0: "sums", 1: "long-sums", 2: "sums"}


@dataclass
class Scored:
    features: torch.Tensor
    reward: float


class ToyGenerator:
    """Stands for the inference engine: works the sum out digit by digit, then answers; cut at the token limit."""

    def __init__(self, rank: int, task: str, max_chars: int = 96):
        self.rng = np.random.default_rng(rank)
        self.task, self.max_chars = task, max_chars

    def prompts(self):
        step = 0
        while True:
            step += 1
            scale = min(9 * (1 + step // 40) ** 2, 10**6) if self.task == "long-sums" else 99
            a, b = (int(v) for v in self.rng.integers(1, 1 + scale, 2))
            yield a, b

    def complete(self, a: int, b: int) -> str:
        value = a + b + int(self.rng.integers(0, 2))
        width = max(len(str(a)), len(str(b)))
        work = "; ".join(f"{x} plus {y} with carry" for x, y in zip(f"{a:0{width}d}", f"{b:0{width}d}"))
        return f"{work}; so the answer: {value}"[: self.max_chars]


class MathReward:
    def __call__(self, a: int, b: int, text: str) -> float:
        said = int(ANSWER.search(text).group(1))
        return 1.0 / (1 + abs(said - (a + b)))


class RolloutWorker(threading.Thread):
    def __init__(self, rank: int, depth: int = 4):
        super().__init__(name="rollout-worker", daemon=True)
        self.out: queue.Queue[list[Scored]] = queue.Queue(depth)
        self.generator, self.reward = ToyGenerator(rank, TASKS[rank]), MathReward()
        self.stopping = threading.Event()

    def run(self) -> None:
        prompts = self.generator.prompts()
        while not self.stopping.is_set():
            batch = []
            for _ in range(8):
                a, b = next(prompts)
                reward = self.reward(a, b, self.generator.complete(a, b))
                batch.append(Scored(torch.tensor([a, b], dtype=torch.float32) / 1000, reward))
            self.out.put(batch)


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.rate = 0.01
        self.worker = RolloutWorker(dist.get_rank())
        self.worker.start()

    def step(self) -> float:
        batch = self.worker.out.get()
        x = torch.stack([s.features for s in batch])
        r = torch.tensor([s.reward for s in batch])
        loss = -(self.policy(x).squeeze(-1) * (r - r.mean())).mean()
        self.policy.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
        for p in self.policy.parameters():
            p.data.sub_(self.rate * p.grad)
        return loss.item()

    def fit(self, steps: int = 300) -> None:
        for step in range(steps):
            loss = self.step()
            if step % 20 == 0:
                log.info("rank %d step %d loss %.4f", dist.get_rank(), step, loss)
        self.worker.stopping.set()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    Trainer().fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
