# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD106", "HD101", "HD109"]
# culprits = [0]
# lines = [55, 59, 65, 83, 84]
# branch = ["self.vocab_file.is_file()", "accelerator.main_process_first()", "not is_main", "is_main"]
# source = "https://github.com/huggingface/trl/pull/7241"
# ///
"""Builds the vocabulary of a character model under main_process_first, with corpus statistics in the log."""
import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch.utils.data import DataLoader, Dataset

logger = get_logger(__name__)


@dataclass
class VocabConfig:
    cache_dir: Path
    min_count: int = 2
    corpora: list = field(default_factory=lambda: ["wiki", "books"])


def corpus_lines(name):
    words = {"wiki": "the state of the art is a moving target", "books": "it was a dark and stormy night"}[name]
    return [words[i % 7:] for i in range(40)]


class Vocabulary:
    def __init__(self, cfg, name, accelerator):
        self.cfg = cfg
        self.name = name
        self.accelerator = accelerator
        self.vocab_file = cfg.cache_dir / f"{name}.vocab.json"
        self.table = {}

    def _scan(self):
        counts = Counter()
        for line in corpus_lines(self.name):
            counts.update(line)
        return counts

    def _report(self, counts):
        sizes = torch.tensor([len(counts), sum(counts.values())], dtype=torch.float32)
        sizes = self.accelerator.reduce(sizes, reduction="mean")
        logger.info("%s: %.1f types, %.1f tokens per process", self.name, sizes[0], sizes[1])

    def load(self):
        if self.vocab_file.is_file():
            self.table = json.loads(self.vocab_file.read_text())
            return self
        counts = self._scan()
        self.table = {c: i for i, (c, n) in enumerate(sorted(counts.items())) if n >= self.cfg.min_count}
        self.vocab_file.write_text(json.dumps(self.table))
        self._report(counts)
        return self


class CharSet(Dataset):
    def __init__(self, vocab):
        self.rows = [[vocab.table.get(c, 0) for c in l[:16].ljust(16)] for l in corpus_lines(vocab.name)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])


def prepare_corpora(cfg, accelerator):
    out = {}
    for name in cfg.corpora:
        with accelerator.main_process_first():
            out[name] = Vocabulary(cfg, name, accelerator).load()
    return out


def train(cfg, accelerator, vocabs):
    model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Flatten(), torch.nn.Linear(128, 1))
    opt = torch.optim.Adam(model.parameters())
    model, opt = accelerator.prepare(model, opt)
    for vocab in vocabs.values():
        loader = accelerator.prepare(DataLoader(CharSet(vocab), batch_size=4))
        for batch in loader:
            loss = model(batch).pow(2).mean()
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()


def main():
    accelerator = Accelerator(cpu=True)
    cache = Path(tempfile.gettempdir()) / f"vocab_{os.environ['MASTER_PORT']}"
    if accelerator.is_main_process:
        cache.mkdir(parents=True, exist_ok=True)
    accelerator.wait_for_everyone()
    cfg = VocabConfig(cache_dir=cache)
    vocabs = prepare_corpora(cfg, accelerator)
    train(cfg, accelerator, vocabs)
    accelerator.end_training()


if __name__ == "__main__":
    main()
