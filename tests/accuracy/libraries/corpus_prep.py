# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD508", "HD507", "HD101"]
# culprits_any = [[0], [1, 2], [1], [2]]
# lines = [68, 70, 78, 79, 81, 82, 83]
# branch = ["digest == self._recorded_digest()", "not self.done_file.exists()", "self.rank == 0"]
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Tokenise a small instruction corpus once per node, then train on the cached arrow files."""
import hashlib
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import datasets
import torch
import torch.distributed as dist
from datasets import Dataset

log = logging.getLogger("corpus_prep")
datasets.disable_progress_bars()


@dataclass
class PrepConfig:
    workdir: Path
    max_length: int = 24
    seed: int = 11
    signal_name: str = ".local_rank0_data_prep_completed"


def read_rows(n=96):
    return [{"prompt": f"question number {i}", "response": "yes " * (1 + i % 5)} for i in range(n)]


class CorpusBuilder:
    def __init__(self, cfg: PrepConfig, rank: int):
        self.cfg = cfg
        self.rank = rank
        self.arrow_dir = cfg.workdir / "tokenized"
        self.meta_file = cfg.workdir / "digest.json"
        self.done_file = cfg.workdir / cfg.signal_name

    def _digest(self, rows):
        h = hashlib.sha256(json.dumps(rows, sort_keys=True).encode())
        h.update(str(self.cfg.max_length).encode())
        return h.hexdigest()

    def _recorded_digest(self):
        if not self.meta_file.exists():
            return None
        return json.loads(self.meta_file.read_text())["digest"]

    def _tokenize(self, example):
        text = example["prompt"] + " " + example["response"]
        ids = [ord(c) % 97 for c in text][: self.cfg.max_length]
        ids = ids + [0] * (self.cfg.max_length - len(ids))
        return {"input_ids": ids, "length": sum(1 for i in ids if i)}

    def _materialize(self, rows, digest):
        if digest == self._recorded_digest():
            log.info("tokenized corpus is up to date")
            return
        ds = Dataset.from_list(rows).map(self._tokenize, remove_columns=["prompt", "response"])
        ds.save_to_disk(str(self.arrow_dir))
        self.meta_file.write_text(json.dumps({"digest": digest, "rows": len(ds)}))
        self.done_file.touch()

    def build(self, rows):
        digest = self._digest(rows)
        if self.rank == 0:
            self._materialize(rows, digest)
        else:
            while not self.done_file.exists():
                time.sleep(0.2)
        dist.barrier()
        if self.rank == 0:
            self.done_file.unlink(missing_ok=True)
        dist.barrier()
        return datasets.load_from_disk(str(self.arrow_dir)).with_format("torch")


def train_stage(name, ds, rank, world):
    model = torch.nn.Embedding(128, 8)
    total = torch.zeros(1)
    for start in range(rank * 4, len(ds) - 4 * world, 4 * world):
        batch = ds[start : start + 4]["input_ids"]
        loss = model(batch).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, model.weight)
        dist.all_reduce(grad)
        model.weight.data.sub_(grad, alpha=0.1 / world)
        total += loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        log.info("%s: loss %.4f", name, total.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    base = Path(tempfile.gettempdir()) / f"corpus_{os.environ['MASTER_PORT']}"
    base.mkdir(parents=True, exist_ok=True)
    cfg = PrepConfig(workdir=base)
    for stage in ("warmup", "main", "anneal"):
        ds = CorpusBuilder(cfg, rank).build(read_rows())
        train_stage(stage, ds, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
