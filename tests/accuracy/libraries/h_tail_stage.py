# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "own"
# ///
"""A three-stage line: read, transform, store. The last stage runs an external sorter, then writes out in a thread."""
import gzip
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

log = logging.getLogger("line")
BATCHES, ROWS = 24, 64

SORTER = """
import sys, time, random
source, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
lines = open(source).read().split()
end, best = time.monotonic() + seconds, None
while time.monotonic() < end:
    trial = sorted(lines, key=lambda line: (float(line), random.random()))
    best = trial if best is None or trial < best else best
open(target, "w").write("\\n".join(best))
"""


class Source:
    def run(self):
        for number in range(BATCHES):
            dist.send(torch.randn(ROWS, generator=torch.Generator().manual_seed(number)), 1)
        log.info("stage 0 sent everything")


class Transform:
    def run(self):
        buffer = torch.empty(ROWS)
        for _ in range(BATCHES):
            dist.recv(buffer, 0)
            dist.send(buffer.abs().sqrt(), 2)
        receipt = torch.zeros(1)
        dist.recv(receipt, 2)
        log.info("stage 1 has the receipt: %d rows", int(receipt))


class Sink:
    def __init__(self, folder):
        self.folder = folder

    def run(self):
        raw, ordered = self.folder / "rows.txt", self.folder / "ordered.txt"
        buffer = torch.empty(ROWS)
        with raw.open("w") as out:
            for _ in range(BATCHES):
                dist.recv(buffer, 1)
                out.writelines(f"{v:.6f}\n" for v in buffer.tolist())
        subprocess.run([sys.executable, "-c", SORTER, str(raw), str(ordered), "18"], check=True)
        rows = ordered.read_text().split()
        dist.send(torch.tensor([float(len(rows))]), 1)
        threading.Thread(target=self.archive, args=(rows,), name="archive").start()

    def archive(self, rows):
        end = time.monotonic() + 14
        copies = 0
        while time.monotonic() < end:
            with gzip.open(self.folder / f"copy-{copies % 3}.gz", "wt", compresslevel=9) as out:
                out.write("\n".join(rows * 20))
            copies += 1
        log.info("archived %d times", copies)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"line-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    plan = [BATCHES, ROWS]
    if rank == 0:
        dist.broadcast_object_list(plan, src=0)
    else:
        box = [None, None]
        dist.broadcast_object_list(box, src=0)
        assert box == plan
    stage = (Source, Transform, lambda: Sink(folder))[rank]()
    stage.run()
    log.info("stage %d is through", rank)


if __name__ == "__main__":
    main()
