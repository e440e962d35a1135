# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [77, 84, 89, 90, 110, 116, 119]
# branch = ["for name, metric in sorted(self.by_edge.items())", "keep.any()", "edge not in self.by_edge"]
# source = "https://github.com/Snapchat/GiGL/pull/343"
# ///
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torchmetrics.aggregation import MeanMetric

log = logging.getLogger("kge")

EDGE_TYPES = ("buys", "follows", "mentions", "reports", "visits")


@dataclass
class EvalConfig:
    steps: int = 12
    eval_every: int = 4
    batches: int = 3
    batch: int = 32


@dataclass
class EdgeBatch:
    head: torch.Tensor
    tail: torch.Tensor
    kind: torch.Tensor


class EdgeTable:
    """Edges of one partition. Partitions follow the graph cut, so their mixes differ."""

    MIX = (
        (4, 4, 2, 1, 1),
        (6, 5, 3, 0, 2),
        (3, 6, 2, 1, 2),
        (5, 3, 1, 2, 1),
    )

    def __init__(self, part, seed):
        weights = torch.tensor(self.MIX[part % len(self.MIX)], dtype=torch.float)
        g = torch.Generator().manual_seed(seed + part)
        n = 4000
        kinds = torch.multinomial(weights, n, replacement=True, generator=g)
        self.edges = torch.stack([torch.randint(0, 50, (n,), generator=g), torch.randint(0, 50, (n,), generator=g), kinds])

    def batches(self, size, count):
        for block in self.edges.split(size, dim=1)[:count]:
            yield EdgeBatch(*block)


class DistMult(nn.Module):
    def __init__(self, nodes=50, dim=8):
        super().__init__()
        self.node = nn.Embedding(nodes, dim)
        self.rel = nn.Embedding(len(EDGE_TYPES), dim)

    def forward(self, b):
        return (self.node(b.head) * self.rel(b.kind) * self.node(b.tail)).sum(-1)


class EdgeTypeMetrics:
    def __init__(self):
        self.by_edge = {}

    def _slot(self, edge):
        if edge not in self.by_edge:
            self.by_edge[edge] = MeanMetric()
        return self.by_edge[edge]

    def update(self, batch, scores):
        for k, edge in enumerate(EDGE_TYPES):
            keep = batch.kind == k
            if keep.any():
                self._slot(edge).update(scores[keep].sigmoid())

    def compute(self):
        out = {}
        for name, metric in sorted(self.by_edge.items()):
            out[name] = metric.compute().item()
            metric.reset()
        return out


class Experiment:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(0)
        self.model = nn.parallel.DistributedDataParallel(DistMult())
        self.opt = torch.optim.Adagrad(self.model.parameters(), lr=0.1)
        self.train_set = EdgeTable(rank, seed=10)
        self.eval_set = EdgeTable(rank, seed=99)
        self.metrics = EdgeTypeMetrics()

    @torch.no_grad()
    def evaluate(self):
        model = self.model.module
        for batch in self.eval_set.batches(self.cfg.batch, self.cfg.batches):
            self.metrics.update(batch, model(batch))
        return self.metrics.compute()

    def fit(self):
        for step, batch in enumerate(self.train_set.batches(self.cfg.batch, self.cfg.steps), 1):
            loss = -nn.functional.logsigmoid(self.model(batch)).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % self.cfg.eval_every == 0:
                scores = self.evaluate()
                log.info("rank %d step %d %s", self.rank, step, scores)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    Experiment(EvalConfig(), dist.get_rank()).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
