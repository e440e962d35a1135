# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101", "HD109"]
# culprits_any = [[2], [0, 1]]
# lines = [42, 43, 46, 100, 107]
# branch = ["not relevant.any()", "relevant.any()"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/2463"
# ///
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torchmetrics import MeanMetric, Metric, MetricCollection
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("rank")


@dataclass
class Query:
    text: torch.Tensor
    docs: torch.Tensor
    relevant: torch.Tensor


class ReciprocalRank(Metric):
    """Keeps one value for each query, so that quantiles can be told at the end."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("values", default=[], dist_reduce_fx=None)

    def update(self, scores, relevant):
        if not relevant.any():
            return
        order = scores.argsort(descending=True)
        first = relevant[order].float().argmax()
        self.values.append(1.0 / (first + 1.0))

    def compute(self):
        flat = torch.stack([v.reshape(-1) for v in self.values]) if len(self.values) else torch.zeros(1, 1)
        return flat.mean()


class MeanScore(MeanMetric):
    def update(self, scores, relevant):
        super().update(scores.mean())


class QueryStore:
    """Queries of one language a rank; a click log tells which documents were relevant."""

    def __init__(self, language, count=24, docs=8):
        self.gen = torch.Generator().manual_seed(300 + language)
        self.language, self.count, self.docs = language, count, docs

    def _clicks(self, i, fold):
        clicks = torch.zeros(self.docs, dtype=torch.bool)
        if not (self.language == 2 and fold == 3 and i % 8 == 5):
            clicks[(i * 3 + self.language) % self.docs] = True
        return clicks

    def queries(self, fold):
        for i in range(self.count):
            text = torch.randn(12, generator=self.gen)
            docs = torch.randn(self.docs, 12, generator=self.gen)
            yield Query(text, docs, self._clicks(i, fold))


class TwoTower(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.q, self.d = nn.Linear(12, dim), nn.Linear(12, dim)

    def forward(self, text, docs):
        return self.d(docs) @ self.q(text)


class RankerTask:
    def __init__(self, store):
        torch.manual_seed(4)
        self.model = DDP(TwoTower())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.store = store
        self.metrics = MetricCollection({"mrr": ReciprocalRank(), "score": MeanScore()})

    def train_fold(self, fold):
        for query in self.store.queries(fold):
            target = query.relevant.float().clamp(min=1e-3)
            loss = -(self.model(query.text, query.docs).log_softmax(0) * target).sum()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def evaluate(self, fold):
        for query in self.store.queries(fold):
            self.metrics.update(self.model.module(query.text, query.docs), query.relevant)
        values = self.metrics.compute()
        self.metrics.reset()
        return {k: v.item() for k, v in values.items()}


def main():
    dist.init_process_group("gloo")
    task = RankerTask(QueryStore(dist.get_rank()))
    for fold in range(6):
        task.train_fold(fold)
        log.info("fold %d %s", fold, task.evaluate(fold))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
