# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits_any = [[1, 2], [0]]
# lines = [50, 51, 53, 54, 76, 106, 109]
# branch = ["not self.path.exists()"]
# source = "hao-ai-lab/FastVideo#598"
# ///
"""Pretraining over a document corpus; an index of sample boundaries is kept beside the tokens."""
import argparse
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Corpus:
    def __init__(self, root, documents=64):
        self.root = root
        generator = torch.Generator().manual_seed(9)
        self.lengths = torch.randint(20, 90, (documents,), generator=generator).tolist()

    def total(self):
        return sum(self.lengths)


class SampleIndex:
    """Boundaries of fixed-length samples; made once, then read from disk by everybody."""

    def __init__(self, corpus, length, seed):
        self.corpus, self.length = corpus, length
        self.path = corpus.root / f"index_{length}_{seed}.json"

    def build(self):
        starts, position = [], 0
        while position + self.length <= self.corpus.total():
            starts.append(position)
            position += self.length
        partial = self.path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(starts))
        partial.replace(self.path)

    def open(self, rank):
        if not self.path.exists():
            if rank == 0:
                self.build()
            dist.barrier()
        return json.loads(self.path.read_text())


class TinyModel(nn.Module):
    def __init__(self, vocab=100, width=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.out(self.embed(tokens).cumsum(1))


def load_merges(rank):
    """The tokenizer's table; read over the network file system except where it is already in memory."""
    if rank > 0:
        time.sleep(1.5)
    return {f"{a}{b}": a * 10 + b for a in range(10) for b in range(10)}


def synchronize(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def train(model, starts, args, rank, world):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step, start in enumerate(starts[rank::world][: args.steps]):
        tokens = torch.randint(0, 100, (2, args.length), generator=generator)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if rank == 0:
            print(f"step {step} at {start} loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1234)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = pathlib.Path(tempfile.gettempdir()) / f"corpus-{os.environ['MASTER_PORT']}"
    root.mkdir(exist_ok=True)
    merges = load_merges(rank)
    index = SampleIndex(Corpus(root), args.length, args.seed)
    starts = index.open(rank)
    torch.manual_seed(len(merges))
    model = TinyModel()
    synchronize(model)
    train(model, starts, args, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
