# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD401", "HD305", "HD101"]
# culprits = [3]
# lines = [34, 39, 47, 92, 94, 95]
# branch = ["not parts"]
# source = "forum threads on a rank without data that ends early; compare argonne-lcf/dlio_benchmark#339"
# ///
"""Batch inference: every process embeds its part files, then process 0 merges what the others announce."""
import argparse
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("embed")


class Board:
    """Announcements on the job's store."""

    def __init__(self, store, world):
        self.store, self.world = dist.PrefixStore("embed", store), world

    def announce(self, rank, report):
        self.store.set(f"part/{rank}", json.dumps(report))

    def collect(self):
        reports = []
        for rank in range(self.world):
            self.store.wait([f"part/{rank}"], timedelta(hours=2))
            reports.append(json.loads(self.store.get(f"part/{rank}")))
        return reports

    def release(self):
        self.store.set("merged", "1")

    def wait_released(self):
        self.store.wait(["merged"], timedelta(hours=2))


class Parts:
    def __init__(self, folder, sizes):
        self.folder = pathlib.Path(folder)
        for number, rows in enumerate(sizes):
            generator = torch.Generator().manual_seed(number)
            torch.save(torch.randn(rows, 24, generator=generator), self.folder / f"part-{number:02d}.pt")

    def mine(self, rank, world):
        paths = sorted(self.folder.glob("part-*.pt"))[rank::world]
        return [path for path in paths if path.stat().st_size > 4096]


class Embedder:
    def __init__(self, width):
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(24, width), torch.nn.Tanh(), torch.nn.Linear(width, 8))

    @torch.no_grad()
    def run(self, path):
        rows = torch.load(path)
        time.sleep(0.1)
        return self.net(rows)


def embed(board, parts, rank):
    embedder, rows = Embedder(48), 0
    for path in parts:
        rows += len(embedder.run(path))
    board.announce(rank, {"rows": rows, "files": len(parts)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="400,300,500,20,420,310,480,12,390,350,470,0")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    board = Board(dist.distributed_c10d._get_default_store(), world)
    files = Parts(tempfile.mkdtemp(prefix="parts-"), [int(size) for size in args.sizes.split(",")])
    dist.barrier()
    parts = files.mine(rank, world)
    if not parts:
        log.info("no files for this process")
        sys.exit(0)
    embed(board, parts, rank)
    if rank == 0:
        reports = board.collect()
        log.info("%d rows of %d files", sum(r["rows"] for r in reports), sum(r["files"] for r in reports))
        board.release()
    else:
        board.wait_released()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
