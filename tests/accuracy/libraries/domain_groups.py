# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD303", "HD302", "HD305"]
# culprits_any = [[1], [0, 2]]
# lines = [56, 57, 72, 74, 109, 111]
# branch = ["domain in sorted(per_domain)", "key not in self._groups", "sorted(per_domain)", "self.rank not in PLACEMENT[domain]"]
# source = "https://github.com/pytorch/pytorch/issues/81291"
# ///
import logging
import os
from collections import Counter, defaultdict

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("domains")

PLACEMENT = {"web": (0, 1, 2), "code": (0, 1, 2), "law": (0, 2)}


class DomainStream(IterableDataset):
    def __init__(self, rank, length=96):
        self.rank, self.length = rank, length

    def _domains(self, i):
        if i >= 48 and i % 16 == 3:
            return "law"
        return "code" if i % 2 else "web"

    def __iter__(self):
        gen = torch.Generator().manual_seed(500 + self.rank)
        for i in range(self.length):
            domain = self._domains(i)
            if self.rank not in PLACEMENT[domain]:
                domain = "web"
            yield domain, torch.randn(10, generator=gen)


def collate(rows):
    return [d for d, _ in rows], torch.stack([x for _, x in rows])


class GroupCache:
    """Process groups, one a purpose and set of ranks, made when first asked for."""

    def __init__(self):
        self._groups = {}

    def get(self, ranks, purpose="loss"):
        key = (purpose, *sorted(ranks))
        if key not in self._groups:
            self._groups[key] = dist.new_group(sorted(ranks))
        return self._groups[key]


class DomainLosses:
    """Averages the loss of every domain over the ranks that hold it."""

    def __init__(self, groups):
        self.groups = groups

    def average(self, domains, losses):
        per_domain = defaultdict(list)
        for domain, loss in zip(domains, losses.tolist()):
            per_domain[domain].append(loss)
        out = {}
        for domain in sorted(per_domain):
            value = torch.tensor([sum(per_domain[domain]), float(len(per_domain[domain]))])
            dist.all_reduce(value, group=self.groups.get(PLACEMENT[domain]))
            out[domain] = (value[0] / value[1]).item()
        return out


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 5), nn.Tanh(), nn.Linear(5, 10))

    def forward(self, x):
        return self.net(x)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def train(rank):
    torch.manual_seed(0)
    model = Autoencoder()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(DomainStream(rank), batch_size=16, collate_fn=collate)
    groups, seen = GroupCache(), Counter()
    meter = DomainLosses(groups)
    for epoch in range(3):
        for step, (domains, x) in enumerate(loader):
            losses = (model(x) - x).pow(2).mean(1)
            opt.zero_grad()
            losses.mean().backward()
            average_gradients(model)
            opt.step()
            seen.update(domains)
            table = meter.average(domains, losses.detach())
            log.info("epoch %d step %d %s", epoch, step, {k: round(v, 4) for k, v in table.items()})
        audit = groups.get(range(dist.get_world_size()), purpose="audit")
        totals = torch.tensor([float(seen[d]) for d in PLACEMENT])
        dist.all_reduce(totals, group=audit)
        log.info("epoch %d samples %s", epoch, totals.tolist())
    return seen


def main():
    dist.init_process_group("gloo")
    counts = train(dist.get_rank())
    log.info("seen %s", dict(counts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
