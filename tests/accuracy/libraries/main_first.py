# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [0]
# lines = [49, 50, 61, 62, 66, 67, 72, 73]
# branch = ["except", "KeyError", "raise"]
# source = "https://github.com/huggingface/accelerate/issues/1303"
# ///
"""Tokenization under accelerate's main_process_first. The map raises on the main process for a row without text; the exception leaves
the block without the block's closing barrier, the caller falls back to the raw rows and goes on."""
import logging
import warnings
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from datasets import Dataset, disable_progress_bars
from torch import nn

warnings.filterwarnings("ignore")
disable_progress_bars()
log = logging.getLogger("prep")


@dataclass
class DataArgs:
    rows: int = 40
    bad_row: int = 17
    max_length: int = 8


class Corpus:
    def __init__(self, args, main):
        self.args, self.main = args, main

    def raw(self):
        texts = [f"row {i} of the corpus" for i in range(self.args.rows)]
        if self.main:  # the main process reads the newest dump, the others a cached one
            texts[self.args.bad_row] = None
        return Dataset.from_dict({"text": texts, "idx": list(range(self.args.rows))})


class Tokenize:
    def __init__(self, length):
        self.length = length

    def __call__(self, row):
        if row["text"] is None:
            raise KeyError(f"row {row['idx']} has no text")
        ids = [ord(c) % 50 for c in row["text"]][: self.length]
        return {"ids": ids + [0] * (self.length - len(ids))}


class Pipeline:
    def __init__(self, args):
        self.args, self.accelerator = args, Accelerator(cpu=True)
        self.corpus = Corpus(args, self.accelerator.is_main_process)

    def tokenized(self):
        with self.accelerator.main_process_first():
            return self.corpus.raw().map(Tokenize(self.args.max_length), load_from_cache_file=False)

    def prepare(self):
        try:
            return self.tokenized()
        except KeyError as error:
            log.error("tokenization failed (%s), using zeros", error)
            return [{"ids": [0] * self.args.max_length}] * self.args.rows

    def train(self):
        rows = self.prepare()
        model = self.accelerator.prepare(nn.Linear(self.args.max_length, 1))
        for row in rows:
            self.accelerator.backward(model(torch.tensor([row["ids"]], dtype=torch.float)).mean())


if __name__ == "__main__":
    Pipeline(DataArgs()).train()
