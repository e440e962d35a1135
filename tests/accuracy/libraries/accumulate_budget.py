# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[0], [1], [0, 1]]
# lines = [33, 36, 40, 42, 81]
# branch = ["self.budget", "boundary", "no_sync"]
# source = "https://github.com/huggingface/accelerate/issues/1847"
# ///
"""Gradients are accumulated until a token budget is full, and only then synchronised (no_sync otherwise).  The budget is
counted per rank and the sentences of rank 1 are longer, so the ranks synchronise at different micro-batches."""
import random
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TokenAccumulator:
    """Decides whether this micro-batch closes a step."""

    def __init__(self, budget):
        self.budget = budget
        self.tokens = 0
        self.steps = 0
        self.boundary = False

    def add(self, lengths):
        self.tokens += int(lengths.sum())
        self.boundary = self.tokens >= self.budget

    def context(self, model):
        return nullcontext() if self.boundary else model.no_sync()

    def backward(self, model, loss_fn, batch):
        self.add(batch["lengths"])
        with self.context(model):
            loss = loss_fn(model, batch)
            loss.backward()
        return loss.detach()

    def step(self, optimizer):
        if self.boundary:
            optimizer.step()
            optimizer.zero_grad()
            self.tokens = 0
            self.steps += 1


class Encoder(nn.Module):
    def __init__(self, vocabulary=50, width=16):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


def make_batches(rank, n):
    rng = random.Random(rank)
    low, high = (4, 12) if rank == 0 else (10, 20)
    for _ in range(n):
        length = rng.randint(low, high)
        yield {"ids": torch.randint(0, 50, (4, length)), "lengths": torch.full((4,), length)}


def language_loss(model, batch):
    logits = model(batch["ids"][:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["ids"][:, 1:].flatten())


def train_epoch(model, optimizer, rank):
    accumulator = TokenAccumulator(budget=150)
    losses = []
    for batch in make_batches(rank, 48):
        losses.append(accumulator.backward(model, language_loss, batch))
        accumulator.step(optimizer)
    return torch.stack(losses).mean(), accumulator.steps


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    reporting = dist.new_group()
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(2):
        loss, steps = train_epoch(model, optimizer, rank)
        dist.all_reduce(loss, group=reporting)
        print(f"rank {rank} epoch {epoch}: {steps} steps, loss {loss.item() / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
