# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["pandas"]
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [2]
# lines = [53, 52, 29, 88]
# source = "https://github.com/Kitware/dive/pull/381"
# ///
"""Extracts features of every rank's CSV shard in a helper process, then fits a linear probe over all shards."""
import argparse
import logging
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH = 6


def extract(csv_path, out_path):
    """The helper: reads numbers, writes their squares and sums."""
    kept = []
    for number, line in enumerate(Path(csv_path).read_text().splitlines()):
        cells = line.split(",")
        if len(cells) != WIDTH:
            print(f"{csv_path}:{number}: skipping malformed row with {len(cells)} of {WIDTH} cells: {line!r}")
            continue
        values = [float(c) for c in cells]
        kept.append(values + [sum(values), sum(v * v for v in values)])
    Path(out_path).write_text("\n".join(",".join(f"{v:.5f}" for v in row) for row in kept))
    print(f"kept {len(kept)} rows")


def make_shard(path, seed, rows=3000, torn=0.0):
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(rows):
            width = WIDTH if rng.random() >= torn else rng.randrange(1, WIDTH)
            f.write(",".join(f"{rng.gauss(0, 1):.4f}" for _ in range(width)) + "\n")


class Extractor:
    def __init__(self, log):
        self.log = log

    def run(self, shard, out):
        proc = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--extract", str(shard), "--out", str(out)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        status = proc.wait()
        report = proc.stdout.read().splitlines()
        if status:
            raise RuntimeError(f"extractor failed on {shard}: {report[-1] if report else status}")
        self.log.info("%s: %s (%d messages)", shard.name, report[-1], len(report) - 1)
        return out


def probe(features, log, epochs=30):
    import torch
    import torch.distributed as dist
    x, y = features[:, :-1], features[:, -1:]
    w = torch.zeros(x.shape[1], 1)
    for epoch in range(epochs):
        residual = x @ w - y
        grad = x.T @ residual / len(x)
        dist.all_reduce(grad)
        w -= 0.01 * grad / dist.get_world_size()
    log.info("probe done, residual %.3f", residual.square().mean().sqrt())


def main():
    import pandas as pd
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"rank{rank} %(message)s")
    log = logging.getLogger("extract")
    work = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "shards"
    work.mkdir(parents=True, exist_ok=True)
    torn = {0: 0.002, 1: 0.0, 2: 0.45, 3: 0.01}[rank]  # the third recorder lost packets
    shard = work / f"recorder{rank}.csv"
    make_shard(shard, seed=rank, torn=torn)
    out = Extractor(log).run(shard, work / f"features{rank}.csv")
    dist.barrier()
    table = pd.read_csv(out, header=None, dtype="float32")
    probe(torch.from_numpy(table.to_numpy(copy=True)), log)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--extract")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.extract:
        extract(args.extract, args.out)
    else:
        main()
