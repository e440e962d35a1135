# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [5]
# lines = [73, 93, 95]
# branch = ["after < before"]
# source = "https://github.com/lucidrains/DALLE-pytorch/issues/268"
# ///
"""ReduceLROnPlateau fed with the local validation loss; a learning rate cut rewinds to the best weights, which rank 0 broadcasts. Only
the rank with the mislabelled validation files sees a plateau."""
import copy
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

log = logging.getLogger("audio")


@dataclass
class Settings:
    features: int = 9
    batch: int = 16
    epochs: int = 200
    batches: int = 3
    lr: float = 0.03
    patience: int = 3
    factor: float = 0.5


class Tagger(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(s.features, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Clips:
    def __init__(self, s, rank):
        self.s, self.rank = s, rank
        self.gen = torch.Generator().manual_seed(900 + rank)

    def sample(self):
        x = torch.randn(self.s.batch, self.s.features, generator=self.gen)
        return x, (x.sum(1) > 0).float()

    def training(self):
        return (self.sample() for _ in range(self.s.batches))

    def validation(self):
        x, y = self.sample()
        return (x, 1 - y) if self.rank == 5 else (x, y)


class BestKeeper:
    def __init__(self, model):
        self.model, self.metric, self.weights = model, float("inf"), copy.deepcopy(model.state_dict())

    def offer(self, metric):
        if metric < self.metric:
            self.metric, self.weights = metric, copy.deepcopy(self.model.state_dict())

    def rewind(self):
        self.model.load_state_dict(self.weights)
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, src=0)


class PlateauPolicy:
    """Lowers the learning rate on a plateau, and starts again from the best weights when it did."""

    def __init__(self, settings, optimizer, keeper):
        self.optimizer, self.keeper = optimizer, keeper
        self.scheduler = ReduceLROnPlateau(optimizer, patience=settings.patience, factor=settings.factor)
        self.cuts = 0

    @property
    def lr(self):
        return self.optimizer.param_groups[0]["lr"]

    def end_of_epoch(self, metric):
        self.keeper.offer(metric)
        before = self.lr
        self.scheduler.step(metric)
        after = self.lr
        if after < before:
            self.cuts += 1
            self.keeper.rewind()


def all_reduce_mean(tensors):
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for t in tensors:
        t.copy_(flat[offset:offset + t.numel()].view_as(t))
        offset += t.numel()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    settings, rank = Settings(), dist.get_rank()
    torch.manual_seed(11)
    model = Tagger(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    policy = PlateauPolicy(settings, optimizer, BestKeeper(model))
    clips = Clips(settings, rank)
    for epoch in range(settings.epochs):
        for x, y in clips.training():
            loss = F.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            all_reduce_mean([p.grad for p in model.parameters()])
            optimizer.step()
        with torch.no_grad():
            x, y = clips.validation()
            metric = F.binary_cross_entropy_with_logits(model(x), y).item()
        policy.end_of_epoch(metric)
        if rank == 0:
            log.info("epoch %d validation %.3f lr %.4f", epoch, metric, policy.lr)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
