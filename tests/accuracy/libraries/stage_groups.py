# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD303"]
# culprits_any = [[2, 3]]
# lines = [44, 46, 47, 80]
# branch = ["stage in (0,", "self.stage", "ties_embedding"]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/1444"
# ///
"""Three pipeline stages of two data-parallel ranks each. First and last stage share the embedding and make a group for it; the middle
stage, which has no embedding, does not take part in making it. The next group, of all ranks, then has two names."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Layout:
    stages: int = 3
    replicas: int = 2

    def stage(self, rank):
        return rank // self.replicas

    def members(self, stage):
        return list(range(stage * self.replicas, (stage + 1) * self.replicas))


class ParallelState:
    def __init__(self, layout, rank):
        self.layout, self.rank, self.stage = layout, rank, layout.stage(rank)
        self.data_group, self.embedding_group, self.metric_group = None, None, None

    def ties_embedding(self):
        return self.stage in (0, self.layout.stages - 1)

    def initialize(self):
        for stage in range(self.layout.stages):
            group = dist.new_group(self.layout.members(stage))
            if stage == self.stage:
                self.data_group = group
        if self.ties_embedding():
            ends = self.layout.members(0) + self.layout.members(self.layout.stages - 1)
            self.embedding_group = dist.new_group(ends)
        self.metric_group = dist.new_group()


class StageModule(nn.Module):
    def __init__(self, state):
        super().__init__()
        self.embedding = nn.Embedding(10, 8) if state.ties_embedding() else None
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


class Engine:
    def __init__(self, state):
        self.state, self.module = state, StageModule(state)

    def reduce_gradients(self):
        for p in self.module.layer.parameters():
            dist.all_reduce(p.grad, group=self.state.data_group)
        if self.module.embedding is not None:
            dist.all_reduce(self.module.embedding.weight.data, group=self.state.embedding_group)

    def train(self, steps):
        for _ in range(steps):
            self.module(torch.randn(3, 8)).sum().backward()
            self.reduce_gradients()
            dist.barrier(group=self.state.metric_group)


def main():
    dist.init_process_group("gloo")
    state = ParallelState(Layout(), dist.get_rank())
    state.initialize()
    Engine(state).train(5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
