# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits = [1]
# lines = [60, 64, 66]
# source = "own"
# ///
"""A metric hub reduces its channels on process groups of their own, fullest channel first. Rank 1 has the long documents, so at one flush
its order of channels is another than that of the others."""
import logging
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("lm")


@dataclass
class TrainArgs:
    vocab: int = 20
    dim: int = 12
    batch: int = 3
    steps: int = 300
    flush_every: int = 4
    long_doc: int = 40
    lr: float = 0.05


@dataclass
class Channel:
    name: str
    group: object
    pending: list = field(default_factory=list)

    def push(self, value):
        self.pending.append(float(value))

    def drain(self):
        total = torch.tensor([sum(self.pending), float(len(self.pending))])
        self.pending.clear()
        return total


class MetricHub:
    """Collects scalars on every rank, averages them over the job and hands the table to the writers."""

    def __init__(self, names):
        self.channels = OrderedDict((n, Channel(n, dist.new_group())) for n in names)
        self.writers = []

    def push(self, name, value):
        self.channels[name].push(value)

    def by_backlog(self):
        return sorted(self.channels.values(), key=lambda c: len(c.pending), reverse=True)

    def flush(self, step):
        table = {}
        for channel in self.by_backlog():
            total = channel.drain()
            dist.all_reduce(total, group=channel.group)
            table[channel.name] = (total[0] / total[1].clamp(min=1)).item()
        for writer in self.writers:
            writer(step, table)


class ConsoleWriter:
    def __init__(self, every):
        self.every, self.calls = every, 0

    def __call__(self, step, table):
        self.calls += 1
        if self.calls % self.every == 0:
            log.info("step %d %s", step, " ".join(f"{k} {v:.3f}" for k, v in sorted(table.items())))


class Corpus:
    """Yields batches of documents; the crawl is sorted by site, so lengths differ between the shards."""

    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.gen = torch.Generator().manual_seed(rank)

    def length(self, step, index):
        if self.rank == 1 and step >= 12:
            return 60
        return 44 if index == 0 else 10 + (step + index) % 7

    def batches(self):
        for step in range(self.args.steps):
            yield [torch.randint(self.args.vocab, (self.length(step, i),), generator=self.gen) for i in range(self.args.batch)]


class BigramLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim)
        self.out = nn.Linear(args.dim, args.vocab)

    def forward(self, doc):
        return F.cross_entropy(self.out(self.embed(doc[:-1])), doc[1:])


def train(args, rank):
    torch.manual_seed(0)
    model = BigramLM(args)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    hub = MetricHub(["loss", "long_loss", "tokens"])
    if rank == 0:
        hub.writers.append(ConsoleWriter(every=2))
    for step, docs in enumerate(Corpus(args, rank).batches()):
        losses = [model(d) for d in docs]
        opt.zero_grad()
        torch.stack(losses).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
        hub.push("loss", torch.stack(losses).mean())
        hub.push("loss", losses[0])
        for doc, loss in zip(docs, losses):
            if len(doc) > args.long_doc:
                hub.push("long_loss", loss)
        if step % 2 == 0:
            hub.push("tokens", sum(map(len, docs)))
        if (step + 1) % args.flush_every == 0:
            hub.flush(step)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(TrainArgs(), dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
