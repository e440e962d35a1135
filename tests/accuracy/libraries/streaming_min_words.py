# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [3]
# lines = [68, 93]
# branch = ["example[\"n_words\"] >= cfg.min_words", "enumerate(loader)"]
# source = "https://github.com/huggingface/datasets/issues/6719"
# ///
"""Accelerate loop over a streaming dataset split by node; short documents are filtered on the fly after the split."""
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from datetime import timedelta
from torch.utils.data import DataLoader

logger = logging.getLogger(__name__)


@dataclass
class RunConfig:
    vocab: int = 50
    dim: int = 16
    seq: int = 10
    min_words: int = 6
    per_device: int = 4
    epochs: int = 2
    log_every: int = 4


CRAWL = [f"crawl-{i:02d}.jsonl.zst" for i in range(8)]


def read_documents(files):
    for name in files:
        number = int(name[6:8])
        g = torch.Generator().manual_seed(number)
        for k in range(24):
            # the last crawl segments are mostly navigation menus
            low, high = (6, 30) if number not in (3, 7) else (2, 11)
            words = int(torch.randint(low, high, (1,), generator=g))
            yield {"url": f"{name}/{k}", "n_words": words, "ids": torch.randint(0, 50, (10,), generator=g).tolist()}


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.rnn = nn.GRU(cfg.dim, cfg.dim, batch_first=True)
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids[:, :-1]))
        return F.cross_entropy(self.out(hidden).flatten(0, 1), ids[:, 1:].flatten())


def make_loader(cfg, accelerator):
    stream = IterableDataset.from_generator(read_documents, gen_kwargs={"files": CRAWL})
    stream = split_dataset_by_node(stream, rank=accelerator.process_index, world_size=accelerator.num_processes)
    stream = stream.filter(lambda example: example["n_words"] >= cfg.min_words)
    return DataLoader(stream.select_columns(["ids"]), batch_size=cfg.per_device, drop_last=True,
                      collate_fn=lambda rows: torch.tensor([r["ids"] for r in rows]))


class Progress:
    def __init__(self, accelerator, every):
        self.accelerator, self.every, self.sum = accelerator, every, 0.0

    def update(self, step, loss):
        self.sum += loss
        if step % self.every == 0 and self.accelerator.is_main_process:
            logger.info("step %d mean loss %.3f", step, self.sum / (step + 1))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    cfg = RunConfig()
    set_seed(5)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(minutes=30))])
    model = TinyLM(cfg)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for epoch in range(cfg.epochs):
        loader, progress, step = make_loader(cfg, accelerator), Progress(accelerator, cfg.log_every), -1
        for step, ids in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(ids)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            progress.update(step, loss.item())
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            logger.info("epoch %d done after %d steps", epoch, step + 1)
    accelerator.end_training()


if __name__ == "__main__":
    main()
