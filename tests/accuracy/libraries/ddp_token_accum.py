# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102"]
# culprits = [5]
# lines = [49, 84, 85, 90, 101, 108, 109, 110]
# branch = ["self.tokens >= self.target", "self.window.full", "if last", "self.window.add(int(mask.sum()))"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"
# ///
"""Gradient accumulation by tokens: micro-batches are collected under no_sync until the window holds enough target
tokens, then gradients are synchronised, clipped and applied."""
import contextlib
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("accum")


@dataclass
class AccumConfig:
    vocab: int = 32
    width: int = 12
    length: int = 10
    micro_batches: int = 60
    tokens_per_update: int = 36
    log_every: int = 2


class TokenWindow:
    """Counts target tokens since the last update."""

    def __init__(self, target):
        self.target, self.tokens, self.micro = target, 0, 0

    def add(self, count):
        self.tokens += count
        self.micro += 1
        return self.full

    @property
    def full(self):
        return self.tokens >= self.target

    def reset(self):
        taken = (self.tokens, self.micro)
        self.tokens = self.micro = 0
        return taken


class Conversations:
    """Packed conversations with a loss mask; a rank's shard may contain long tool outputs without targets."""
    tool_heavy = {5: range(13, 16)}

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def __iter__(self):
        for i in range(self.cfg.micro_batches):
            gen = torch.Generator().manual_seed(self.rank * 999 + i)
            ids = torch.randint(0, self.cfg.vocab, (1, self.cfg.length), generator=gen)
            mask = torch.ones_like(ids, dtype=torch.bool)
            if i in self.tool_heavy.get(self.rank, ()):
                mask[:, 4:] = False
            yield ids, mask


class TokenAccumulation:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Embedding(cfg.vocab, cfg.width), nn.Linear(cfg.width, cfg.vocab)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.window = TokenWindow(cfg.tokens_per_update)
        self.updates = 0

    def micro_step(self, ids, mask):
        last = self.window.add(int(mask.sum()))
        context = contextlib.nullcontext() if last else self.model.no_sync()
        with context:
            logits = self.model(ids)
            per_token = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
            loss = (per_token * mask.flatten()).sum() / self.cfg.tokens_per_update
            loss.backward()
        return last, loss.item()

    def update(self):
        tokens, micro = self.window.reset()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        count = torch.tensor([tokens], dtype=torch.int64)
        parts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, count)
        if self.rank == 0 and self.updates % self.cfg.log_every == 0:
            log.info("update %d: %d micro-batches, %d tokens", self.updates, micro, int(torch.cat(parts).sum()))

    def fit(self):
        for ids, mask in Conversations(self.cfg, self.rank):
            last, _ = self.micro_step(ids, mask)
            if last:
                self.update()
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    TokenAccumulation(AccumConfig()).fit()
    dist.destroy_process_group()
