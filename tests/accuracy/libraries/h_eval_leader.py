# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/huggingface/transformers/pull/1081"
# ///
"""The last rank evaluates alone for half a minute (beam search in Python), the others wait in a barrier; then training goes on."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class EvalConfig:
    seconds: float = 32.0
    beams: int = 6
    steps: int = 4


class BeamSearch:
    def __init__(self, cfg, model):
        self.cfg, self.model = cfg, model

    def expand(self, beams):
        scores = [sum(b) % 7 for b in beams]
        best = sorted(range(len(beams)), key=lambda i: scores[i])[: self.cfg.beams]
        return [beams[i] + [j] for i in best for j in range(self.cfg.beams)]

    def search(self):
        beams = [[0]]
        for _ in range(12):
            beams = self.expand(beams)
        return beams[0]


class Evaluator:
    def __init__(self, cfg, model):
        self.cfg, self.search = cfg, BeamSearch(cfg, model)

    def run(self):
        end, done = time.monotonic() + self.cfg.seconds, 0
        while time.monotonic() < end:
            self.search.search()
            done += 1
        return done


def train(model, steps):
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)


def main():
    dist.init_process_group("gloo")
    cfg, model = EvalConfig(), nn.Linear(4, 4)
    train(model, cfg.steps)
    if dist.get_rank() == dist.get_world_size() - 1:
        Evaluator(cfg, model).run()
    dist.barrier()
    train(model, cfg.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
