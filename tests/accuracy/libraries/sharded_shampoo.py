# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [0]
# lines = [70, 101, 102, 107, 113, 126, 127]
# branch = ["not local", "p.grad is not None"]
# source = "https://github.com/facebookresearch/optimizers/pull/149"
# ///
"""Fine-tunes the head of a residual network with a Shampoo optimizer whose preconditioners are spread over the data-parallel ranks."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("shampoo")


@dataclass
class Phase:
    name: str
    steps: int
    frozen: tuple


PHASES = (
    Phase("warm-up", 4, ()),
    Phase("head-only", 4, ("blocks.",)),
    Phase("full", 4, ()),
)


class ResNet(nn.Module):
    def __init__(self, width=24, depth=5):
        super().__init__()
        self.stem = nn.Linear(12, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)


class Distributor:
    """Assigns parameters to owners, largest first, always to the one with the least work."""

    def __init__(self, params, world):
        load = [0] * world
        self.owner = {}
        for p in sorted(params, key=lambda p: -p.numel()):
            target = min(range(world), key=lambda r: (load[r], r))
            self.owner[p] = target
            load[target] += p.numel() ** 1.5
        self.world, self.rank = world, dist.get_rank()
        self.width = max(sum(p.numel() for p in self.owned(r)) for r in range(world))

    def owned(self, rank):
        return [p for p, r in self.owner.items() if r == rank]

    def gather(self, flat):
        buffer = torch.zeros(self.width)
        buffer[:flat.numel()] = flat
        parts = [torch.empty(self.width) for _ in range(self.world)]
        dist.all_gather(parts, buffer)
        return parts

    @torch.no_grad()
    def publish(self):
        mine = self.owned(self.rank)
        flat = torch.cat([p.flatten() for p in mine]) if mine else torch.empty(0)
        for rank, part in enumerate(self.gather(flat)):
            offset = 0
            for p in self.owned(rank):
                p.copy_(part[offset:offset + p.numel()].view_as(p))
                offset += p.numel()


class DistributedShampoo:
    def __init__(self, params, lr=0.02, eps=1e-4):
        self.lr, self.eps = lr, eps
        self.distributor = Distributor(list(params), dist.get_world_size())
        self.factors = {}
        self.steps = 0

    def precondition(self, p):
        grad = p.grad if p.grad.dim() == 2 else p.grad.unsqueeze(0)
        left = self.factors.setdefault(p, torch.eye(grad.shape[0]) * self.eps)
        left += grad @ grad.t()
        values, vectors = torch.linalg.eigh(left)
        root = vectors @ torch.diag(values.clamp_min(self.eps).pow(-0.25)) @ vectors.t()
        return (root @ grad).view_as(p)

    @torch.no_grad()
    def step(self):
        local = [p for p in self.distributor.owned(dist.get_rank()) if p.grad is not None]
        if not local:
            return
        self.steps += 1
        for p in local:
            p -= self.lr * self.precondition(p)
        self.distributor.publish()


def average_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def run_phase(model, optimizer, phase, gen):
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(phase.frozen) if phase.frozen else True)
        p.grad = None
    for step in range(phase.steps):
        x = torch.randn(32, 12, generator=gen)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        log.info("%s step %d loss %.4f", phase.name, step, loss.item())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(name)s %(message)s")
    torch.manual_seed(0)
    model = ResNet()
    optimizer = DistributedShampoo(model.parameters())
    gen = torch.Generator().manual_seed(50 + rank)
    for r in range(dist.get_world_size()):
        log.info("rank %d owns %s", r, [tuple(p.shape) for p in optimizer.distributor.owned(r)])
    for phase in PHASES:
        run_phase(model, optimizer, phase, gen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
