# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [0]
# lines = [46, 66, 81, 102]
# source = "https://github.com/RadarML/red-rover/issues/23"
# ///
import logging
import os
import queue
import struct
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("radar")
FRAME = struct.Struct("<I8f")


def record_shards(root, rank, shards=3, frames=40):
    """The day's recording of one sensor, one file a drive."""
    gen = torch.Generator().manual_seed(rank)
    for s in range(shards):
        with open(root / f"sensor{rank}_drive{s}.bin", "wb") as f:
            for i in range(frames):
                f.write(FRAME.pack(i, *torch.randn(8, generator=gen).tolist()))
            if rank == 0 and s == 1:
                f.truncate(f.tell() - 11)


class FrameFile:
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path, "rb") as f:
            while blob := f.read(FRAME.size):
                index, *values = FRAME.unpack(blob)
                yield index, torch.tensor(values)


class Prefetch:
    """Reads ahead in a thread, at most `depth` frames."""

    _END = object()

    def __init__(self, source, depth=8):
        self.source, self.buffer = source, queue.Queue(depth)
        self.thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self.thread.start()

    def _work(self):
        for item in self.source:
            self.buffer.put(item)
        self.buffer.put(self._END)

    def __iter__(self):
        while (item := self.buffer.get()) is not self._END:
            yield item


class Drives:
    def __init__(self, root, rank, batch=4):
        self.files = sorted(root.glob(f"sensor{rank}_*.bin"))
        self.batch = batch

    def _frames(self):
        for path in self.files:
            yield from FrameFile(path)

    def __iter__(self):
        rows = []
        for _, frame in Prefetch(self._frames()):
            rows.append(frame)
            if len(rows) == self.batch:
                yield torch.stack(rows)
                rows = []


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 3), nn.Linear(3, 8)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


def train(drives, epochs=4):
    torch.manual_seed(1)
    model = DDP(Autoencoder())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for step, batch in enumerate(drives):
            loss = (model(batch) - batch).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = Path(tempfile.gettempdir()) / f"radar_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    record_shards(root, rank)
    train(Drives(root, rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
