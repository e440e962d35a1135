# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [3]
# lines = [61, 62, 64, 75, 94]
# branch = ["rows.numel()", "numel", "load"]
# source = "https://github.com/deepspeedai/DeepSpeed/pull/5008"
# ///
"""A mixture of experts under ZeRO-3. An expert that got no token is skipped, so its parameters are gathered on the ranks that have
tokens for it only; the last rank's batch is all padding for one step."""
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
from dataclasses import dataclass

import deepspeed
import torch
from torch import nn


@dataclass
class MoEConfig:
    width: int = 16
    experts: int = 3
    steps: int = 12
    tokens: int = 9


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


class Router:
    """Round robin over the experts; padding goes to the first."""

    def __init__(self, experts):
        self.experts = experts

    def assign(self, padding):
        choice = torch.arange(len(padding)) % self.experts
        choice[padding] = 0
        return choice


class MoE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.experts = nn.ModuleList(Expert(cfg.width) for _ in range(cfg.experts))
        self.router, self.load = Router(cfg.experts), [0] * cfg.experts

    def forward(self, x, padding):
        choice, out = self.router.assign(padding), x.clone()
        for index, expert in enumerate(self.experts):
            rows = (choice == index).nonzero().flatten()
            if rows.numel() == 0:
                continue
            self.load[index] += rows.numel()
            out = out.index_add(0, rows, expert(x[rows]))
        return out


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem, self.moe = nn.Linear(cfg.width, cfg.width, bias=False), MoE(cfg)
        self.head = nn.Linear(cfg.width, cfg.width, bias=False)

    def forward(self, x, padding):
        return self.head(self.moe(self.stem(x), padding))


def batch(cfg, rank, step):
    padding = torch.zeros(cfg.tokens, dtype=torch.bool)
    if rank == 3 and step == 4:
        padding[:] = True
    return torch.randn(cfg.tokens, cfg.width), padding


def main():
    cfg = MoEConfig()
    deepspeed.init_distributed("gloo", verbose=False)
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
                "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}, "zero_force_ds_cpu_optimizer": False}
    model = Model(cfg)
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01), config=settings)
    for step in range(cfg.steps):
        x, padding = batch(cfg, engine.global_rank, step)
        loss = engine(x, padding).square().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
