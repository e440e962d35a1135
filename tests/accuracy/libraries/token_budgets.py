# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits = [2]
# lines = [82, 77, 84]
# branch = ["spent >= cfg.token_budget", "for ids, mask in loader"]
# source = "https://github.com/huggingface/accelerate/issues/1311"
# ///
"""Language-model warm-up with accelerate: the main process reads a stream and hands out slices of every batch."""
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("warmup")


@dataclass
class WarmupConfig:
    vocab: int = 128
    length: int = 24
    batch: int = 4
    epochs: int = 2
    documents: int = 600
    token_budget: int = 1500
    lr: float = 0.1


class DocumentStream(IterableDataset):
    """Documents come in rounds: some notes, some letters, then a few reports (which are long)."""

    def __init__(self, cfg):
        self.cfg = cfg

    def __iter__(self):
        g = torch.Generator().manual_seed(7)
        for i in range(self.cfg.documents):
            kind = (i // self.cfg.batch) % 3
            n = [7, 9, 22][kind]
            ids = torch.zeros(self.cfg.length, dtype=torch.long)
            ids[:n] = torch.randint(1, self.cfg.vocab, (n,), generator=g)
            yield ids, (torch.arange(self.cfg.length) < n)


class Bigram(nn.Module):
    def __init__(self, cfg, dim=16):
        super().__init__()
        self.table = nn.Embedding(cfg.vocab, dim)
        self.out = nn.Linear(dim, cfg.vocab)

    def forward(self, ids):
        return self.out(self.table(ids))


def masked_loss(logits, ids, mask):
    flat = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    keep = mask[:, 1:].flatten()
    return (flat * keep).sum() / keep.sum().clamp(min=1)


def descend(model, lr):
    with torch.no_grad():
        for p in model.parameters():
            p -= lr * p.grad
    model.zero_grad()


def run_epoch(accelerator, model, loader, cfg, epoch):
    """One pass, cut short when the token budget of the epoch is used up."""
    spent, loss = 0, None
    for ids, mask in loader:
        loss = masked_loss(model(ids), ids, mask)
        accelerator.backward(loss)
        descend(model, cfg.lr)
        spent += int(mask.sum())
        if spent >= cfg.token_budget:
            break
    accelerator.wait_for_everyone()
    log.info("epoch %d: %d tokens, loss %.3f", epoch, spent, loss.item())


def main():
    cfg = WarmupConfig()
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    logging.basicConfig(level=logging.INFO, format=f"p{accelerator.process_index} %(message)s")
    torch.manual_seed(0)
    loader = DataLoader(DocumentStream(cfg), batch_size=cfg.batch)
    model, loader = accelerator.prepare(Bigram(cfg), loader)
    for epoch in range(cfg.epochs):
        run_epoch(accelerator, model, loader, cfg, epoch)
    accelerator.end_training()


if __name__ == "__main__":
    main()
