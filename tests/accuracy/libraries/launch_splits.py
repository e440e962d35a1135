# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD301"]
# culprits = [2]
# lines = [82, 116, 118, 119]
# branch = ["not split.files"]
# source = "https://github.com/ultralytics/yolov5/issues/4574"
# ///
"""A launcher of its own: one process per split, world_size from the configuration. A split whose files are all quarantined gets no
process, so rank 2 never starts and the others wait in init_process_group."""
import argparse
import json
import logging
import os
import random
import socket
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

log = logging.getLogger("splits")


@dataclass
class Split:
    name: str
    files: list = field(default_factory=list)


@dataclass
class LaunchConfig:
    root: str
    workers: int = 4
    port: int = 0
    epochs: int = 3
    width: int = 8


def write_corpus(root, workers):
    """Stands for the nightly export: a few JSON files a split and a list of quarantined ones."""
    rng, quarantined = random.Random(4), []
    for s in range(workers):
        for i in range(3):
            path = Path(root) / f"split{s}" / f"{i}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps([[rng.gauss(0, 1) for _ in range(8)] for _ in range(24)]))
            if s == 2 or rng.random() < 0.1:
                quarantined.append(f"split{s}/{i}.json")
    (Path(root) / "quarantine.txt").write_text("\n".join(quarantined))


def read_splits(cfg):
    banned = set((Path(cfg.root) / "quarantine.txt").read_text().split())
    splits = []
    for s in range(cfg.workers):
        split = Split(f"split{s}")
        for path in sorted((Path(cfg.root) / split.name).glob("*.json")):
            if f"{split.name}/{path.name}" not in banned:
                split.files.append(str(path))
        splits.append(split)
    return splits


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker:
    def __init__(self, cfg, rank, split):
        self.cfg, self.rank, self.split = cfg, rank, split
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(cfg.workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cfg.port))
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(minutes=30))
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(cfg.width, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optim = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def epoch(self):
        total = 0.0
        for path in self.split.files[:1]:
            x = torch.tensor(json.loads(Path(path).read_text()))
            self.optim.zero_grad()
            loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
            self.optim.step()
            total += loss.item()
        return total

    def run(self):
        for epoch in range(self.cfg.epochs):
            loss = self.epoch()
            if self.rank == 0:
                log.info("epoch %d loss %.3f", epoch, loss)
        dist.destroy_process_group()


def work(cfg, rank, split):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Worker(cfg, rank, split).run()


def launch(cfg):
    context, children = mp.get_context("spawn"), []
    for rank, split in enumerate(read_splits(cfg)):
        if not split.files:
            log.info("%s: nothing to train on", split.name)
            continue
        child = context.Process(target=work, args=(cfg, rank, split), name=split.name)
        child.start()
        children.append(child)
    log.info("%d of %d splits are being trained on", len(children), cfg.workers)
    for child in children:
        child.join()
    return max(child.exitcode or 0 for child in children)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=None)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    root = args.root or tempfile.mkdtemp(prefix="corpus-")
    if args.root is None:
        write_corpus(root, args.workers)
    raise SystemExit(launch(LaunchConfig(root, args.workers, free_port())))


if __name__ == "__main__":
    main()
