# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits = [1]
# lines = [81, 100, 108, 109, 116]
# branch = ["tokens > self.cfg.token_limit"]
# source = "https://github.com/pytorch/pytorch/issues/44353"
# ///
"""accelerate with gradient accumulation. A micro-batch above the token limit is skipped before accumulate(), which shifts the boundaries of
that rank by one micro-batch; nothing is seen of it until the end of the epoch, where it has synchronised once less."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("sft")


@dataclass
class SFTConfig:
    vocab: int = 24
    dim: int = 12
    documents: int = 78
    micro_batch: int = 2
    accumulate: int = 4
    epochs: int = 3
    token_limit: int = 90
    lr: float = 0.01


class Transcripts(Dataset):
    """Meetings of 8 to 40 words, and one all-hands."""

    def __init__(self, cfg):
        rng = random.Random(4)
        self.lengths = [rng.randint(8, 40) for _ in range(cfg.documents)]
        self.lengths[26] = 64
        self.cfg = cfg

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        return torch.randint(1, self.cfg.vocab, (self.lengths[i],), generator=gen)


def collate(rows):
    width = max(map(len, rows))
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        tokens[i, :len(row)] = row
    return {"tokens": tokens, "padded": tokens.numel() - sum(map(len, rows))}


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        logits = self.out(self.embed(tokens[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


class MemoryGuard:
    """The activations of a wide batch do not fit."""

    def __init__(self, cfg):
        self.cfg, self.skipped = cfg, 0

    def fits(self, batch):
        tokens = batch["tokens"].numel()
        if tokens > self.cfg.token_limit:
            self.skipped += 1
            return False
        return True


class SFT:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=cfg.accumulate)
        torch.manual_seed(0)
        model = TinyLM(cfg)
        loader = DataLoader(Transcripts(cfg), batch_size=cfg.micro_batch, collate_fn=collate)
        self.model, self.opt, self.loader = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=cfg.lr), loader)
        self.guard = MemoryGuard(cfg)

    def micro_step(self, batch):
        with self.accelerator.accumulate(self.model):
            loss = self.model(batch["tokens"])
            self.accelerator.backward(loss)
            self.opt.step()
            self.opt.zero_grad()
        return loss.detach()

    def run_epoch(self):
        losses = []
        for batch in self.loader:
            if not self.guard.fits(batch):
                continue
            losses.append(self.micro_step(batch))
        return torch.stack(losses)

    def train(self):
        for epoch in range(self.cfg.epochs):
            losses = self.run_epoch()
            mean = self.accelerator.gather(losses.mean()).mean().item()
            log.info("epoch %d mean loss %.3f, skipped %d here", epoch, mean, self.guard.skipped)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    SFT(SFTConfig()).train()


if __name__ == "__main__":
    main()
