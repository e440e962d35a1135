# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD102", "HD101", "HD109"]
# culprits_any = [[1], [0]]
# lines = [108, 71, 96, 111]
# branch = ["except torch.OutOfMemoryError", "rows * length * self.width > self.cells", "for chunk in batch.split(self.microbatch)", "chunk in batch.split(self.microbatch)", "batch.split(self.microbatch)"]
# source = "https://github.com/mosaicml/composer/pull/2117"
# ///
"""DDP training that finds the microbatch size which fits into the memory of the device."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("auto-mb")


@dataclass
class TrainConfig:
    epochs: int = 2
    batch: int = 16
    microbatch: int = 16
    vocabulary: int = 50
    width: int = 16


class Notes(Dataset):
    """Clinical notes; a few are very long."""

    LONG = {333: 900, 401: 700}

    def __init__(self, cfg, count=640):
        self.g = torch.Generator().manual_seed(6)
        lengths = torch.randint(10, 60, (count,), generator=self.g).tolist()
        self.lengths = [self.LONG.get(n, length) for n, length in enumerate(lengths)]
        self.vocabulary = cfg.vocabulary

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, n):
        g = torch.Generator().manual_seed(n)
        return torch.randint(1, self.vocabulary, (self.lengths[n],), generator=g)


class Batch:
    def __init__(self, notes):
        self.tokens = nn.utils.rnn.pad_sequence(notes, batch_first=True)

    def __len__(self):
        return len(self.tokens)

    def split(self, size):
        return self.tokens.split(size)


class MemoryPool:
    """Accounts for the activations, in the manner of a caching allocator with a fixed share."""

    def __init__(self, cells, width):
        self.cells = cells
        self.width = width

    def reserve(self, rows, length):
        if rows * length * self.width > self.cells:
            raise torch.OutOfMemoryError(f"tried to allocate {rows * length * self.width} cells of {self.cells}")


class Encoder(nn.Module):
    def __init__(self, cfg, pool):
        super().__init__()
        self.pool = pool
        self.embed = nn.Embedding(cfg.vocabulary, cfg.width, padding_idx=0)
        self.head = nn.Linear(cfg.width, cfg.vocabulary)

    def forward(self, tokens):
        self.pool.reserve(*tokens.shape)
        return self.head(self.embed(tokens).mean(1))


class Trainer:
    def __init__(self, cfg, pool):
        self.cfg = cfg
        self.microbatch = cfg.microbatch
        self.model = DistributedDataParallel(Encoder(cfg, pool))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train_microbatches(self, batch):
        total = 0.0
        for chunk in batch.split(self.microbatch):
            logits = self.model(chunk)
            loss = nn.functional.cross_entropy(logits, chunk[:, 0]) * len(chunk) / len(batch)
            loss.backward()
            total += loss.item()
        return total

    def train_batch(self, batch):
        while True:
            self.optimizer.zero_grad()
            try:
                loss = self.train_microbatches(batch)
            except torch.OutOfMemoryError as error:
                if self.microbatch == 1:
                    raise
                self.microbatch //= 2
                log.warning("%s; microbatch is now %d", error, self.microbatch)
                continue
            self.optimizer.step()
            return loss

    def fit(self, loader):
        for epoch in range(self.cfg.epochs):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                loss = self.train_batch(batch)
            log.info("epoch %d loss %.3f microbatch %d", epoch, loss, self.microbatch)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = TrainConfig()
    torch.manual_seed(0)
    data = Notes(cfg)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=cfg.batch, sampler=sampler, collate_fn=Batch)
    Trainer(cfg, MemoryPool(cells=160_000, width=cfg.width)).fit(loader)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
