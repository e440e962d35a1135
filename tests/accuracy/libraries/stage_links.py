# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD201", "HD106"]
# culprits = [1]
# lines = [42, 44, 48, 50, 53, 75, 76, 78, 83, 110]
# branch = ["self.frozen", "self.shape is None"]
# source = "https://github.com/deepspeedai/DeepSpeed/pull/5481"
# ///
"""Four pipeline stages, one a rank, with links that transmit a tensor's shape only when the link is new; trains, then validates with longer sequences."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pipeline")
SHAPE_TAG, DATA_TAG = 11, 12


@dataclass
class StageConfig:
    width: int = 32
    train_length: int = 16
    eval_length: int = 48
    microbatches: int = 4
    frozen_stages: tuple = (1,)


class Link:
    """One direction between two neighbouring stages."""

    def __init__(self, peer: int):
        self.peer, self.shape = peer, None

    def renew(self):
        self.shape = None

    def send(self, tensor: torch.Tensor):
        if self.shape is None:
            self.shape = tuple(tensor.shape)
            dist.send(torch.tensor(self.shape), self.peer, tag=SHAPE_TAG)
        dist.send(tensor.contiguous(), self.peer, tag=DATA_TAG)

    def receive(self) -> torch.Tensor:
        if self.shape is None:
            shape = torch.zeros(2, dtype=torch.int64)
            dist.recv(shape, self.peer, tag=SHAPE_TAG)
            self.shape = tuple(shape.tolist())
        tensor = torch.empty(self.shape)
        dist.recv(tensor, self.peer, tag=DATA_TAG)
        return tensor


class Stage(nn.Module):
    """A stage's layers and its links to the neighbours."""

    def __init__(self, cfg: StageConfig, index: int, count: int):
        super().__init__()
        self.cfg, self.index, self.count = cfg, index, count
        self.layers = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.Dropout(0.1), nn.Tanh())
        self.frozen = index in cfg.frozen_stages
        self.inbound = Link(index - 1) if index > 0 else None
        self.outbound = Link(index + 1) if index < count - 1 else None
        if self.frozen:
            self.layers.requires_grad_(False)
            self.layers.eval()

    def links(self):
        return [link for link in (self.inbound, self.outbound) if link is not None]

    def train(self, mode: bool = True):
        if self.frozen:
            return self     # running statistics and dropout of frozen layers stay as they are
        super().train(mode)
        for link in self.links():
            link.renew()
        return self

    def forward(self, source=None):
        batch = source if self.inbound is None else self.inbound.receive()
        result = self.layers(batch)
        if self.outbound is not None:
            self.outbound.send(result.detach())
        return result


class Runner:
    def __init__(self, cfg: StageConfig, stage: Stage):
        self.cfg, self.stage = cfg, stage

    def run(self, length: int) -> float:
        total = 0.0
        for _ in range(self.cfg.microbatches):
            source = torch.randn(length, self.cfg.width) if self.stage.inbound is None else None
            result = self.stage(source)
            total += result.pow(2).mean().item()
        return total / self.cfg.microbatches

    def train_epoch(self, steps: int):
        self.stage.train()
        for _ in range(steps):
            activity = self.run(self.cfg.train_length)
        log.info("train activity %.4f", activity)

    @torch.no_grad()
    def validate(self):
        self.stage.eval()
        log.info("validation activity %.4f", self.run(self.cfg.eval_length))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    torch.manual_seed(rank)
    cfg = StageConfig()
    runner = Runner(cfg, Stage(cfg, rank, world))
    for epoch in range(2):
        runner.train_epoch(steps=5)
        runner.validate()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
