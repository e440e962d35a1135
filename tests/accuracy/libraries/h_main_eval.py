# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "pytorch forum: evaluation on rank 0 only, others in a barrier"
# ///
"""Training with a thorough evaluation on the main rank after each phase; the others wait for its verdict."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Judge:
    """Slides over a long series; one window after the other."""

    def __init__(self, windows, seconds):
        self.windows, self.seconds = windows, seconds
        self.series = torch.randn(windows + 16, generator=torch.Generator().manual_seed(2)).cumsum(0)

    @torch.no_grad()
    def evaluate(self, model):
        errors = []
        for start in range(self.windows):
            window = self.series[start:start + 17]
            guess = model((window[:16] - window[0]).unsqueeze(0)).item()
            errors.append(abs(guess - (window[16] - window[0]).item()))
            time.sleep(self.seconds / self.windows)
        return sum(errors) / len(errors)


class Trainer:
    def __init__(self, rank, lr=1e-2):
        torch.manual_seed(0)
        self.rank = rank
        self.model = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.generator = torch.Generator().manual_seed(rank)

    def phase(self, steps):
        for _ in range(steps):
            x = torch.randn(8, 16, generator=self.generator)
            loss = nn.functional.mse_loss(self.model(x).squeeze(1), x[:, -1])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def verdict(self, judge):
        answer = torch.zeros(1)
        if self.rank == 0:
            answer.fill_(judge.evaluate(self.model.module))
        dist.barrier()
        dist.broadcast(answer, src=0)
        return answer.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=22)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer(rank)
    for phase, seconds in enumerate((1.0, args.seconds)):
        trainer.phase(args.steps)
        error = trainer.verdict(Judge(400, seconds))
        if rank == 0:
            print(f"phase {phase} error {error:.4f}", flush=True)
    trainer.phase(args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
