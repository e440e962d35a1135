# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD107"]
# culprits = [3]
# lines = [72, 73, 74, 77, 80, 95, 98, 101, 124]
# branch = ["batch.precomputed_routes", "self.ready.items()", "group, params in"]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/107"
# ///
"""Data-parallel training with two kinds of parameters: dense ones are averaged over everybody, expert ones over their replicas."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("mixture")


@dataclass
class Batch:
    features: torch.Tensor
    target: torch.Tensor
    precomputed_routes: bool
    routes: torch.Tensor | None = None


class Corpus:
    """Most documents are routed on the fly; for some sources an offline pass has already stored the routes."""

    SOURCES = ["web", "web", "forum", "news", "web", "wiki", "forum", "code"]
    OFFLINE = {"code"}

    def __init__(self, rank, world, width):
        self.rank, self.world, self.width = rank, world, width

    def __iter__(self):
        number = 0
        while True:
            shard = number * self.world + self.rank
            source = self.SOURCES[(shard * 3 + shard // 8) % len(self.SOURCES)]
            gen = torch.Generator().manual_seed(shard)
            x = torch.randn(12, self.width, generator=gen)
            offline = source in self.OFFLINE and shard >= 16
            routes = torch.randint(0, 2, (12,), generator=gen) if offline else None
            yield Batch(x, x.roll(1, 0), offline, routes)
            number += 1


class ExpertBank(nn.Module):
    def __init__(self, width, count=2):
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) * (2 * width) ** -0.5)

    def forward(self, x, routes):
        hidden = torch.einsum("nw,nwh->nh", x, self.up[routes]).relu()
        return torch.einsum("nh,nhw->nw", hidden, self.down[routes])


class MixtureModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.router = nn.Linear(width, 2)
        self.experts = ExpertBank(width)

    def forward(self, batch):
        x = batch.features
        if batch.precomputed_routes:
            routed = self.experts(x, batch.routes)
            dense = self.tower(x)
            gate = self.router(dense).softmax(-1).gather(1, batch.routes[:, None])
        else:
            dense = self.tower(x)
            prob = self.router(dense).softmax(-1)
            gate, routes = prob.max(-1, keepdim=True)
            routed = self.experts(x, routes.squeeze(1))
        return dense + gate * routed


class GradientSync:
    """Collects gradients as they become ready and averages them, one flat buffer per process group."""

    def __init__(self, model, dense_group, expert_group):
        expert_ids = {id(p) for p in model.experts.parameters()}
        self.group_of, self.ready = {}, {}
        for param in model.parameters():
            self.group_of[param] = expert_group if id(param) in expert_ids else dense_group
            param.register_post_accumulate_grad_hook(self.on_ready)

    def on_ready(self, param):
        self.ready.setdefault(self.group_of[param], []).append(param)

    def flush(self):
        for group, params in self.ready.items():
            params = sorted(params, key=lambda p: (p.dim(), tuple(p.shape)))
            flat = torch.cat([p.grad.flatten() for p in params])
            dist.all_reduce(flat, group=group)
            flat /= dist.get_world_size(group)
            for p, piece in zip(params, flat.split([p.numel() for p in params])):
                p.grad.copy_(piece.view_as(p))
        self.ready.clear()


class Job:
    def __init__(self, width=20, steps=60):
        self.rank, self.world, self.steps = dist.get_rank(), dist.get_world_size(), steps
        dense_group = dist.new_group(list(range(self.world)))
        halves = [list(range(0, self.world, 2)), list(range(1, self.world, 2))]
        expert_group = [g for ranks, g in [(r, dist.new_group(r)) for r in halves] if self.rank in ranks][0]
        torch.manual_seed(0)
        self.model = MixtureModel(width)
        self.sync = GradientSync(self.model, dense_group, expert_group)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.corpus = Corpus(self.rank, self.world, width)

    def run(self):
        for step, batch in zip(range(self.steps), self.corpus):
            loss = (self.model(batch) - batch.target).pow(2).mean()
            loss.backward()
            self.sync.flush()
            self.opt.step()
            self.opt.zero_grad()
            log.info("step %d loss %.4f", step, loss.item())


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Job().run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
