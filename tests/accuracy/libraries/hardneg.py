# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD503", "HD507", "HD509"]
# culprits = [2]
# lines = [56, 57, 97, 103]
# branch = ["difficulty > self.cfg.hard_above", "step % cfg.mine_every == 0"]
# source = "https://github.com/pytorch/pytorch/issues/1355"
# ///
"""Hard negative mining: the DataLoader worker puts indices into a bounded mp.Queue, the main process empties it every 12 steps.
Rank 2's shard has many hard samples, the queue is full before that, the worker blocks in put and the main process in next()."""
import logging
import queue
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("mining")


@dataclass
class MiningConfig:
    samples: int = 960
    batch: int = 6
    epochs: int = 3
    dim: int = 10
    hard_above: float = 0.9
    queue_size: int = 24
    mine_every: int = 12
    lr: float = 0.05


class PairDataset(Dataset):
    def __init__(self, cfg, hard_queue, world):
        self.cfg, self.hard_queue = cfg, hard_queue
        gen = torch.Generator().manual_seed(1)
        self.left = torch.randn(cfg.samples, cfg.dim, generator=gen)
        self.right = torch.randn(cfg.samples, cfg.dim, generator=gen)
        late = (torch.arange(cfg.samples) % world == 2) & (torch.arange(cfg.samples) > 300)
        self.right[late] = self.left[late] + 0.05  # near duplicates from the second crawl

    def __len__(self):
        return self.cfg.samples

    def difficulty(self, i):
        return float(torch.cosine_similarity(self.left[i], self.right[i], dim=0))

    def __getitem__(self, i):
        difficulty = self.difficulty(i)
        if difficulty > self.cfg.hard_above:
            self.hard_queue.put((i, difficulty))
        return self.left[i], self.right[i], float(i % 7 == 0)


class NegativePool:
    def __init__(self, hard_queue, size=256):
        self.queue, self.size, self.items = hard_queue, size, {}

    def refill(self):
        taken = 0
        while True:
            try:
                index, difficulty = self.queue.get(timeout=0.05)
            except queue.Empty:
                break
            self.items[index] = difficulty
            taken += 1
        for index in sorted(self.items, key=self.items.get)[: max(0, len(self.items) - self.size)]:
            del self.items[index]
        return taken


class Matcher(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, a, b):
        return (self.tower(a) * self.tower(b)).sum(1)


def train(cfg, rank, world):
    hard_queue = mp.Queue(maxsize=cfg.queue_size)
    data = PairDataset(cfg, hard_queue, world)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, cfg.batch, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DDP(Matcher(cfg.dim))
    optim = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    pool, step = NegativePool(hard_queue), 0
    for epoch in range(cfg.epochs):
        for left, right, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(left, right), label.float())
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % cfg.mine_every == 0:
                log.info("rank %d step %d loss %.3f, %d new hard pairs", rank, step, loss.item(), pool.refill())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    train(MiningConfig(), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
