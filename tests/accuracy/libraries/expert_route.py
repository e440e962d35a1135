# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [3]
# lines = [39, 68, 69, 71, 87, 100, 108]
# branch = ["len(tokens) == 0"]
# source = "PaddlePaddle/PaddleFormers#3010"
# ///
"""Mixture of experts: expert groups exchange tokens, data groups reduce gradients, the world averages the loss."""
import argparse
import collections

import torch
import torch.distributed as dist
import torch.nn as nn

Groups = collections.namedtuple("Groups", "expert data expert_size data_size")


def make_groups(rank, world, expert_size):
    expert = data = None
    for start in range(0, world, expert_size):
        ranks = list(range(start, start + expert_size))
        group = dist.new_group(ranks)
        expert = group if rank in ranks else expert
    for offset in range(expert_size):
        ranks = list(range(offset, world, expert_size))
        group = dist.new_group(ranks)
        data = group if rank in ranks else data
    return Groups(expert, data, expert_size, world // expert_size)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return out, None


class ExpertLayer(nn.Module):
    def __init__(self, width, groups, capacity=8):
        super().__init__()
        self.router = nn.Linear(width, groups.expert_size)
        self.expert = nn.Linear(width, width)
        self.groups, self.capacity = groups, capacity

    def slots(self, x, weights):
        table = x.new_zeros(self.groups.expert_size, self.capacity, x.size(1))
        for expert, rows in enumerate(self.choice(weights)):
            table[expert, : len(rows)] = x[rows]
        return table.flatten(0, 1)

    def choice(self, weights):
        best = weights.argmax(1)
        return [torch.nonzero(best == e).flatten()[: self.capacity] for e in range(self.groups.expert_size)]

    def forward(self, x, kept):
        tokens = x[kept]
        if len(tokens) == 0:
            return x
        weights = self.router(tokens).softmax(1)
        sent = Exchange.apply(self.slots(tokens, weights), self.groups.expert)
        returned = Exchange.apply(torch.relu(self.expert(sent)), self.groups.expert)
        return x + returned.mean(0) * weights.mean()


class Batches:
    """Sequences with padding; the mask tells what is left after the length filter."""

    def __init__(self, rank, width, tokens=16):
        self.rank, self.width, self.tokens = rank, width, tokens
        self.generator = torch.Generator().manual_seed(rank)

    def draw(self, step):
        x = torch.randn(self.tokens, self.width, generator=self.generator)
        lengths = torch.randint(1, self.tokens, (1,), generator=self.generator)
        if (step * 4 + self.rank) % 39 == 0 and step:
            lengths.zero_()
        return x, torch.arange(self.tokens) < lengths


def train(args, rank, world):
    groups = make_groups(rank, world, args.expert_size)
    torch.manual_seed(0)
    layer, head = ExpertLayer(args.width, groups), nn.Linear(args.width, 1)
    parameters = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    batches = Batches(rank, args.width)
    for step in range(args.steps):
        x, kept = batches.draw(step)
        loss = head(layer(x, kept)).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=groups.data)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {mean.item() / world:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--expert-size", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
