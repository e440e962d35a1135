# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [3]
# lines = [87, 88, 89, 90, 93, 105]
# branch = ["value > self.limit"]
# source = "https://github.com/pytorch/pytorch/issues/166638"
# ///
"""Trains a sparse recommender with row-sharded DTensor weights and keeps an eye on the gradient norms of its tables."""
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

log = logging.getLogger("recommender")
WORLD = 4


@dataclass
class Settings:
    items: int = 64
    dim: int = 12
    steps: int = 40
    batch: int = 32
    lr: float = 0.3
    norm_limit: float = 1.0


class ShardedTable(nn.Module):
    """An embedding table whose rows live on different ranks; gradients arrive as DTensors with the same layout."""

    def __init__(self, rows, dim, mesh, seed):
        super().__init__()
        gen = torch.Generator().manual_seed(seed)
        full = 0.3 * torch.randn(rows, dim, generator=gen)
        self.mesh = mesh
        self.weight = nn.Parameter(distribute_tensor(full, mesh, [Shard(0)]))

    def rows(self):
        return self.weight.redistribute(self.mesh, [Replicate()]).to_local()


class Recommender(nn.Module):
    def __init__(self, cfg, mesh):
        super().__init__()
        self.users = ShardedTable(cfg.items, cfg.dim, mesh, seed=1)
        self.items = ShardedTable(cfg.items, cfg.dim, mesh, seed=2)

    def forward(self, users, items, rating):
        score = (self.users.rows()[users] * self.items.rows()[items]).sum(-1)
        return nn.functional.mse_loss(score, rating)


class RatingStream:
    """Purchases in order of time; towards the end of the year a campaign sells the newest articles."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(9)

    def next(self, step):
        cfg = self.cfg
        users = torch.randint(0, cfg.items, (cfg.batch,), generator=self.gen)
        items = torch.randint(0, cfg.items, (cfg.batch,), generator=self.gen)
        rating = torch.rand(cfg.batch, generator=self.gen)
        if step >= 20:
            items[:8] = cfg.items - 1 - items[:8] % 4
            rating[:8] = 5.0 + (step - 20)
        return users, items, rating


class NormWatch:
    def __init__(self, limit):
        self.limit = limit
        self.events = []

    def check(self, step, name, parameter):
        norm = torch.linalg.vector_norm(parameter.grad)
        value = norm.item()
        if value > self.limit:
            self.record(step, name, parameter, value)

    def record(self, step, name, parameter, value):
        rows = parameter.grad.full_tensor().norm(dim=1)
        worst = rows.topk(3)
        self.events.append((step, name, value, worst.indices.tolist()))
        log.warning("step %d %s: gradient norm %.3f, rows %s", step, name, value, worst.indices.tolist())


def train(cfg, mesh, rank):
    model, stream, watch = Recommender(cfg, mesh), RatingStream(cfg), NormWatch(cfg.norm_limit)
    for step in range(cfg.steps):
        loss = model(*stream.next(step))
        loss.backward()
        for name, parameter in model.named_parameters():
            watch.check(step, name, parameter)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= cfg.lr * parameter.grad
                parameter.grad = None
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.MAX)
        if rank == 0 and step % 5 == 0:
            log.info("step %d largest loss %.4f", step, shown.item())
    return watch.events


def worker(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (WORLD,))
    events = train(Settings(), mesh, rank)
    log.info("%d events", len(events))
    dist.barrier()
    dist.destroy_process_group()


def main():
    run_dir = tempfile.mkdtemp(prefix="recommender-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(os.path.join(run_dir, "rendezvous"),), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
