# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD103", "HD102", "HD101"]
# culprits = [2]
# lines = [58, 90, 91, 92, 93, 97, 98, 106, 108, 110]
# branch = ["except RuntimeError", "not in str(error)", "step is None"]
# source = "https://github.com/HannesStark/FlowSite/pull/1"
# ///
"""Trains a point-cloud network for binding sites; the receptive field is all pairs of atoms of a complex."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import MeanMetric

log = logging.getLogger("sites")


@dataclass
class Complex:
    name: str
    atoms: int
    seed: int

    def tensors(self):
        gen = torch.Generator().manual_seed(self.seed)
        xyz = torch.randn(self.atoms, 3, generator=gen) * 8
        return xyz, (xyz.norm(dim=1) < 9).float()


def catalogue(size=90):
    """PDB-like sizes: mostly small, a few assemblies (ribosomes, capsids) are very large."""
    out = []
    for i in range(size):
        atoms = 60 + (i * 37) % 140
        if i % 60 == 41:
            atoms = 3_000_000
        out.append(Complex(f"{i:04x}", atoms, i))
    return out


class PairNet(nn.Module):
    def __init__(self, width=16, shells=6):
        super().__init__()
        self.register_buffer("edges", torch.linspace(2.0, 14.0, shells))
        self.encode = nn.Sequential(nn.Linear(shells, width), nn.SiLU(), nn.Linear(width, width))
        self.decode = nn.Sequential(nn.SiLU(), nn.Linear(width, 1))

    def forward(self, batch):
        losses = []
        for xyz, label in batch:
            pairs = torch.cdist(xyz, xyz, compute_mode="donot_use_mm_for_euclid_dist")
            shells = torch.stack([(pairs < e).float().mean(1) for e in self.edges], 1)
            logit = self.decode(self.encode(shells)).squeeze(-1)
            losses.append(F.binary_cross_entropy_with_logits(logit, label))
        return torch.stack(losses).mean()


class ComplexLoader:
    def __init__(self, items, rank, world, batch):
        self.items, self.batch = items[rank::world], batch

    def __iter__(self):
        for i in range(0, len(self.items), self.batch):
            chunk = self.items[i : i + self.batch]
            yield [c.name for c in chunk], [c.tensors() for c in chunk]

    def __len__(self):
        return -(-len(self.items) // self.batch)


class SiteTrainer:
    def __init__(self, lr=2e-3):
        torch.manual_seed(2)
        self.net = DDP(PairNet(), broadcast_buffers=False)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.loader = ComplexLoader(catalogue(), dist.get_rank(), dist.get_world_size(), 2)
        self.skipped = 0
        self.metric_group = dist.new_group()
        self.mean = MeanMetric(process_group=self.metric_group)

    def learn(self, batch):
        try:
            loss = self.net(batch)
            loss.backward()
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            log.warning("batch does not fit: %s", str(error).splitlines()[0][:90])
            self.opt.zero_grad()
            self.skipped += 1
            return None
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def epoch(self, number):
        for names, batch in self.loader:
            step = self.learn(batch)
            if step is None:
                continue
            self.mean.update(step)
        value = self.mean.compute()
        self.mean.reset()
        log.info("epoch %d mean loss %.4f, %d batches skipped", number, value, self.skipped)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    trainer = SiteTrainer()
    for number in range(2):
        trainer.epoch(number)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
