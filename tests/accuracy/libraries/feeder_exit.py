# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD701"]
# culprits = [2]
# lines = [44, 45, 48, 49]
# source = "https://github.com/mosaicml/composer/pull/52"
# ///
"""Every rank averages chunks that a feeder thread reads ahead; all ranks use as many chunks as the poorest one has."""
import logging
import os
import pathlib
import queue
import tempfile
import threading

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("feed")
CHUNKS = [14, 12, 40]


class ChunkStore:
    def __init__(self, root, rank):
        self.root = pathlib.Path(root) / f"rank{rank}"
        self.root.mkdir(parents=True, exist_ok=True)

    def fill(self, count, seed):
        rng = np.random.default_rng(seed)
        for i in range(count):
            np.save(self.root / f"{i:04d}.npy", rng.normal(size=(64, 32)).astype("float32"))

    def files(self):
        return sorted(self.root.glob("*.npy"))


class Feeder:
    def __init__(self, files, ahead=4):
        self.files = files
        self.ready = queue.Queue(maxsize=ahead)
        self.thread = threading.Thread(target=self.read, name="feeder")
        self.thread.start()

    def read(self):
        for path in self.files:
            self.ready.put(torch.from_numpy(np.load(path)))
        log.debug("feeder read %d files", len(self.files))

    def next(self):
        return self.ready.get()


class Averager:
    def __init__(self, feeder):
        self.feeder = feeder
        self.mean = torch.zeros(32)

    def run(self, steps):
        for _ in range(steps):
            chunk = self.feeder.next()
            part = chunk.mean(0)
            dist.all_reduce(part)
            self.mean += part / (steps * dist.get_world_size())
        return self.mean


def common_steps(count):
    steps = torch.tensor(count)
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    return int(steps)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), f"chunks-{os.getppid()}")
    store = ChunkStore(root, rank)
    store.fill(CHUNKS[rank % len(CHUNKS)], seed=rank)
    files = store.files()
    steps = common_steps(len(files))
    slack = len(files) - steps
    log.info("rank %d reads %d files, %d steps (%d to spare)", rank, len(files), steps, slack)
    mean = Averager(Feeder(files)).run(steps)
    dist.barrier()
    dist.destroy_process_group()
    log.info("rank %d done, mean %.5f", rank, mean.mean().item())


if __name__ == "__main__":
    main()
