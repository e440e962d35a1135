# /// hangdoc
# launch = "python"
# requires = ["datasets"]
# outcome = "hang"
# causes_any = ["HD508", "HD103", "HD101"]
# culprits = [0]
# lines = [55, 61, 69, 70, 71, 74, 75, 76, 83, 85]
# branch = ["except SourceError", "signal.exists()", "self.local_rank != 0"]
# watch = "--give-up-after 8"
# source = "https://github.com/mosaicml/llm-foundry/pull/749"
# ///
"""Prepares a fine-tuning mixture with datasets: local rank 0 tokenizes each source, the other ranks wait for its signal file and read the Arrow files."""
import json
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from datasets import Dataset, disable_progress_bars, load_from_disk

log = logging.getLogger("mixture")
WORLD = 4
ALPHABET = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz .,?")}


class SourceError(Exception):
    """A source that cannot be used in the mixture."""


def write_raw_sources(root):
    raw = {
        "faq": [{"prompt": f"how do i reset item {chr(97 + i % 26)}?", "response": "hold the button."} for i in range(60)],
        "forum": [{"prompt": f"question about {chr(97 + i % 26)}", "response": None if i == 37 else "see the manual."}
                  for i in range(50)],
        "tickets": [{"prompt": f"ticket {chr(97 + i % 26)}", "response": "closed."} for i in range(40)],
    }
    for name, rows in raw.items():
        with (root / f"{name}.jsonl").open("w") as out:
            out.writelines(json.dumps(r) + "\n" for r in rows)
    return list(raw)


class MixtureBuilder:
    def __init__(self, root, local_rank, max_len=48):
        self.root, self.local_rank, self.max_len = root, local_rank, max_len

    def tokenize(self, row):
        try:
            text = row["prompt"] + " " + row["response"]
        except TypeError:
            raise SourceError(f"response of type {type(row['response']).__name__}") from None
        ids = [ALPHABET.get(c, 0) for c in text[:self.max_len]]
        return {"ids": ids + [0] * (self.max_len - len(ids))}

    def prepare(self, name, target):
        rows = [json.loads(line) for line in (self.root / f"{name}.jsonl").open()]
        table = Dataset.from_list([self.tokenize(row) for row in rows])
        table.save_to_disk(str(target))
        return table

    def build(self, name):
        """One process a node does the work, the others take the result."""
        target = self.root / "tokenized" / name
        signal = self.root / f".{name}_data_prep_completed"
        if self.local_rank != 0:
            while not signal.exists():
                time.sleep(0.1)
            table = load_from_disk(str(target))
        else:
            table = self.prepare(name, target)
            signal.touch()
        dist.barrier()
        return table

    def mixture(self, names):
        parts = []
        for name in names:
            try:
                parts.append(self.build(name))
                log.info("%s: %d rows", name, len(parts[-1]))
            except SourceError as error:
                log.error("%s is left out: %s", name, error)
        return parts


def train(parts, rank):
    ids = torch.tensor([row for part in parts for row in part["ids"]])[rank::WORLD].float()
    mean = ids.mean(0)
    dist.all_reduce(mean)
    return mean / WORLD


def worker(rank, root):
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=WORLD)
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    disable_progress_bars()
    root = Path(root)
    names = write_raw_sources(root) if rank == 0 else None
    box = [names]
    dist.broadcast_object_list(box, src=0)
    parts = MixtureBuilder(root, rank).mixture(box[0])
    log.info("mean id %.2f", train(parts, rank).mean())
    dist.destroy_process_group()


def main():
    root = tempfile.mkdtemp(prefix="mixture-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(root,), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
