# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD201", "HD202"]
# culprits_any = [[0, 1, 2, 3], [0], [1], [2], [3], [0, 2], [1, 3]]
# lines = [24, 40, 46, 47, 48, 50, 51, 68]
# branch = ["self.rank % 2 == 0"]
# source = "ByteDance-Seed/VeOmni#1085 (parity schedule of a ring), pytorch/pytorch#172668"
# ///
"""Context parallelism: each pair of ranks passes its key/value blocks around before attention."""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn as nn


class Layout:
    """Ranks are numbered data-parallel first, so that the context groups are strided."""

    def __init__(self, world, context):
        self.data = world // context
        self.context_groups = [list(range(d, world, self.data)) for d in range(self.data)]
        self.data_groups = [list(range(c * self.data, (c + 1) * self.data)) for c in range(context)]

    def create(self, rank):
        mine = {}
        for kind, groups in (("context", self.context_groups), ("data", self.data_groups)):
            for ranks in groups:
                group = dist.new_group(ranks)
                if rank in ranks:
                    mine[kind] = (group, ranks)
        return mine


class BlockRing:
    def __init__(self, group, ranks, rank):
        self.group, self.ranks, self.rank = group, ranks, rank
        position = ranks.index(rank)
        self.right = ranks[(position + 1) % len(ranks)]
        self.left = ranks[position - 1]

    def rotate(self, block):
        arrived = torch.empty_like(block)
        if self.rank % 2 == 0:
            dist.send(block, dst=self.right, group=self.group)
            dist.recv(arrived, src=self.left, group=self.group)
        else:
            dist.recv(arrived, src=self.left, group=self.group)
            dist.send(block, dst=self.right, group=self.group)
        return arrived


class RingAttention(nn.Module):
    def __init__(self, width, ring):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.ring, self.width = ring, width

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        block = torch.cat([k, v], -1).detach().contiguous()
        scores, values = [q @ k.T], [v]
        for _ in range(len(self.ring.ranks) - 1):
            block = self.ring.rotate(block)
            other_k, other_v = block.chunk(2, -1)
            scores.append(q @ other_k.T)
            values.append(other_v)
        weights = (torch.cat(scores, -1) / math.sqrt(self.width)).softmax(-1)
        return weights @ torch.cat(values)


def reduce_gradients(model, group, count):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--context", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = Layout(world, args.context).create(rank)
    torch.manual_seed(0)
    model = RingAttention(args.width, BlockRing(*groups["context"], rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        x = torch.randn(args.tokens, args.width, generator=generator)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        reduce_gradients(model, groups["data"][0], len(groups["data"][1]))
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
