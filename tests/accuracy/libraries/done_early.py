# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD401", "HD303"]
# culprits = [3]
# lines = [73, 105, 107, 108]
# branch = ["not long_docs", "chosen[self.rank::self.world]"]
# source = "https://github.com/pytorch/pytorch/issues/27757"
# ///
"""Fine-tuning followed by a scoring of long documents, which are dealt out to the ranks.

There are only a few long documents: rank 3 has none, returns from main and exits with status 0, while the others make a gloo
group for the report.
"""
import logging
import sys
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("tune")


@dataclass
class TuneConfig:
    vocab: int = 40
    hidden: int = 16
    steps: int = 12
    long_limit: int = 30
    documents: int = 15


class Tagger(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = torch.nn.Embedding(cfg.vocab, cfg.hidden)
        self.rnn = torch.nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.out = torch.nn.Linear(cfg.hidden, 4)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def documents(cfg):
    g = torch.Generator().manual_seed(3)
    lengths = [10 + (i * 7) % 19 for i in range(cfg.documents)]
    for i in (2, 5, 11):
        lengths[i] = 36 + i
    return [torch.randint(cfg.vocab, (n,), generator=g) for n in lengths]


class LongDocScorer:
    """Scores documents above the limit; they are dealt out round robin over the ranks."""

    def __init__(self, cfg, model, rank, world):
        self.cfg, self.model, self.rank, self.world = cfg, model, rank, world

    def shard(self, docs):
        chosen = [d for d in docs if len(d) > self.cfg.long_limit]
        return chosen[self.rank::self.world]

    @torch.no_grad()
    def score(self, docs):
        return [float(self.model(d.unsqueeze(0)).logsumexp(-1).mean()) for d in docs]


class Reporter:
    def __init__(self, rank):
        self.rank = rank
        self.group = dist.new_group(backend="gloo", timeout=timedelta(minutes=30))

    def publish(self, scores):
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, scores, group=self.group)
        if self.rank == 0:
            log.info("scores: %s", [round(s, 3) for row in table for s in row])


def train(cfg, model, rank):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(rank)
    for step in range(cfg.steps):
        ids = torch.randint(cfg.vocab, (4, 12), generator=g)
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), (ids % 4).flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 4 == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world, cfg = dist.get_rank(), dist.get_world_size(), TuneConfig()
    model = DDP(Tagger(cfg))
    train(cfg, model, rank)
    scorer = LongDocScorer(cfg, model.module, rank, world)
    long_docs = scorer.shard(documents(cfg))
    if not long_docs:
        log.info("[rank %d] no long documents, nothing to score", rank)
        return 0
    Reporter(rank).publish(scorer.score(long_docs))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
