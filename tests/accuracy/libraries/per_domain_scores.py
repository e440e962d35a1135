# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD109", "HD101", "HD106"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [61, 62, 69, 70, 85, 87]
# branch = ["name in sorted(self.scores)", "sample.domain not in self.scores"]
# source = "https://github.com/EvolvingLMMs-Lab/lmms-eval/pull/1089"
# ///
"""Evaluates a classifier on a mixed-domain benchmark and reports one accuracy for each domain."""
import logging
from dataclasses import dataclass
from typing import Iterator

import torch
import torch.distributed as dist
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.aggregation import MeanMetric

logger = logging.getLogger("bench")

DOMAINS = ("charts", "maps", "receipts", "photos")


@dataclass(frozen=True)
class Sample:
    uid: int
    domain: str
    features: torch.Tensor
    label: int


class MixedBenchmark:
    """Samples sorted by domain as in the published files: 160 common ones, then the rare domain."""

    def __init__(self, common=160, rare=30):
        self.common, self.rare = common, rare

    def __len__(self):
        return self.common + self.rare

    def sample(self, i):
        gen = torch.Generator().manual_seed(i)
        domain = DOMAINS[i % 3] if i < self.common else DOMAINS[3]
        return Sample(i, domain, torch.randn(10, generator=gen), i % 5)

    def shard(self, rank, world) -> Iterator[Sample]:
        per_rank = -(-len(self) // world)
        for i in range(rank * per_rank, min(len(self), (rank + 1) * per_rank)):
            yield self.sample(i)


class DomainScores:
    def __init__(self, num_classes=5):
        self.num_classes = num_classes
        self.scores = {}
        self.loss = MeanMetric()

    def update(self, sample, logits):
        if sample.domain not in self.scores:
            self.scores[sample.domain] = MulticlassAccuracy(self.num_classes, average="micro")
        label = torch.tensor([sample.label])
        self.scores[sample.domain].update(logits[None], label)
        self.loss.update(torch.nn.functional.cross_entropy(logits[None], label))

    def results(self):
        table = {"loss": self.loss.compute().item()}
        for name in sorted(self.scores):
            table[f"acc/{name}"] = self.scores[name].compute().item()
        return table


class Evaluator:
    def __init__(self, model, benchmark, rank, world):
        self.model = model.eval()
        self.benchmark = benchmark
        self.rank, self.world = rank, world

    @torch.no_grad()
    def run(self):
        scores = DomainScores()
        for sample in self.benchmark.shard(self.rank, self.world):
            scores.update(sample, self.model(sample.features))
        table = scores.results()
        gathered = [None] * self.world
        dist.all_gather_object(gathered, table)
        if self.rank == 0:
            logger.info("results: %s", {k: round(v, 3) for k, v in gathered[0].items()})
        return table


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.GELU(), torch.nn.Linear(32, 5))
    Evaluator(model, MixedBenchmark(common=180, rare=0), rank, world).run()
    for extra in (0, 24):
        Evaluator(model, MixedBenchmark(common=160, rare=extra), rank, world).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
