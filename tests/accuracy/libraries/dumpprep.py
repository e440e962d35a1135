# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD401", "HD508"]
# culprits = [4]
# lines = [105, 107, 108]
# branch = ["not mine"]
# source = "https://github.com/mlcommons/storage/issues/391"
# ///
"""Corpus preparation under torchrun without a process group: ranks meet at marker files. The third dump has fewer files than ranks;
rank 4 gets none, says so and returns (exit status 0) without its marker. The others poll for it."""
import collections
import json
import logging
import os
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

log = logging.getLogger("prep")


@dataclass
class PrepConfig:
    root: Path
    rank: int
    world: int
    poll: float = 0.2
    vocab: int = 500


@dataclass
class Dump:
    name: str
    files: list


def job_folder():
    """All ranks of this launch share a folder; the port of the agent tells launches apart."""
    return Path(tempfile.gettempdir()) / f"prep-{os.environ['MASTER_PORT']}"


def make_dumps(root):
    rng = random.Random(8)
    sizes = {"2024-10": 11, "2024-18": 9, "2024-22": 4, "2024-26": 12}
    dumps = []
    for name, count in sizes.items():
        files = []
        for i in range(count):
            files.append((f"{name}/{i:03d}", [rng.randrange(500) for _ in range(400)]))
        dumps.append(Dump(name, files))
    return dumps


class Markers:
    def __init__(self, cfg):
        self.cfg = cfg
        cfg.root.mkdir(parents=True, exist_ok=True)

    def path(self, dump, what):
        return self.cfg.root / f"{dump}.{what}"

    def put(self, dump, what):
        self.path(dump, what).touch()

    def missing(self, dump):
        return [r for r in range(self.cfg.world) if not self.path(dump, f"part{r}.done").exists()]

    def wait_parts(self, dump):
        while self.missing(dump):
            time.sleep(self.cfg.poll)

    def wait_merged(self, dump):
        while not self.path(dump, "merged").exists():
            time.sleep(self.cfg.poll)


class Preparation:
    def __init__(self, cfg):
        self.cfg, self.markers = cfg, Markers(cfg)

    def count(self, tokens):
        return torch.bincount(torch.tensor(tokens), minlength=self.cfg.vocab)

    def part(self, dump, mine):
        total = sum(self.count(tokens) for _, tokens in mine)
        torch.save(total, self.cfg.root / f"{dump.name}.part{self.cfg.rank}.pt")
        self.markers.put(dump.name, f"part{self.cfg.rank}.done")

    def merge(self, dump):
        self.markers.wait_parts(dump.name)
        totals = [torch.load(p) for p in sorted(self.cfg.root.glob(f"{dump.name}.part*.pt"))]
        counts = collections.Counter(dict(enumerate(torch.stack(totals).sum(0).tolist())))
        (self.cfg.root / f"{dump.name}.json").write_text(json.dumps(counts.most_common(20)))
        self.markers.put(dump.name, "merged")

    def run(self, dumps):
        for dump in dumps:
            mine = dump.files[self.cfg.rank :: self.cfg.world]
            if not mine:
                log.info("rank %d: no files left, nothing to do", self.cfg.rank)
                return
            self.part(dump, mine)
            if self.cfg.rank == 0:
                self.merge(dump)
                log.info("dump %s merged", dump.name)
            self.markers.wait_merged(dump.name)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    cfg = PrepConfig(job_folder(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    Preparation(cfg).run(make_dumps(cfg.root))
    log.info("rank %d: finished", cfg.rank)


if __name__ == "__main__":
    main()
