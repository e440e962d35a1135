# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD101", "HD508", "HD103"]
# culprits = [2]
# lines = [56, 57, 81, 83, 89, 105, 121]
# branch = ["len(body) != 4 * count", "except CorruptClip"]
# source = "https://github.com/RolnickLab/ami-data-companion/issues/140"
# ///
"""Trains on raw audio clips which a background thread decodes into a bounded queue."""
import array
import logging
import os
import queue
import struct
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("audio")
MAGIC = 0x434C4950


class CorruptClip(Exception):
    pass


class ClipStore:
    """Clips in a flat binary format: magic, sample count, float32 samples."""

    def __init__(self, root):
        self.root = Path(root)

    def create(self, clips=90, samples=64):
        self.root.mkdir(parents=True, exist_ok=True)
        for i in range(clips):
            wave = array.array("f", [((i * 7 + k * 3) % 29) / 29 - 0.5 for k in range(samples)])
            blob = struct.pack("<II", MAGIC, samples) + wave.tobytes()
            if i == 71:
                blob = blob[: len(blob) // 2]
            (self.root / f"clip{i:04d}.bin").write_bytes(blob)

    def names(self):
        return sorted(p.name for p in self.root.glob("clip*.bin"))

    def decode(self, name):
        blob = (self.root / name).read_bytes()
        magic, count = struct.unpack_from("<II", blob)
        body = blob[8:]
        if magic != MAGIC:
            raise CorruptClip(f"{name}: not a clip")
        if len(body) != 4 * count:
            raise CorruptClip(f"{name}: {len(body)} bytes for {count} samples")
        return torch.frombuffer(bytearray(body), dtype=torch.float32)

    def clips(self, names):
        for name in names:
            yield self.decode(name)


class BackgroundFeed:
    def __init__(self, store, names, batch, depth=3):
        self.source = store
        self.names = names
        self.batch = batch
        self.queue = queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self._produce, name="feed", daemon=True)

    def _produce(self):
        pending = []
        try:
            for clip in self.source.clips(self.names):
                pending.append(clip)
                if len(pending) == self.batch:
                    self.queue.put(torch.stack(pending))
                    pending = []
        except CorruptClip as err:
            log.error("feed: %s", err)
            return
        self.queue.put(None)

    def __iter__(self):
        self.thread.start()
        while True:
            item = self.queue.get()
            if item is None:
                return
            yield item


class Encoder:
    def __init__(self, samples=64, width=8):
        gen = torch.Generator().manual_seed(0)
        self.kernel = torch.randn(width, samples, generator=gen) * 0.1

    def step(self, wave, lr=0.05):
        kernel = self.kernel.requires_grad_(True)
        code = torch.tanh(wave @ kernel.T)
        loss = (wave - code @ kernel).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, kernel)
        dist.all_reduce(grad)
        self.kernel = (kernel - lr * grad / dist.get_world_size()).detach()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = ClipStore(Path(tempfile.gettempdir()) / f"clips_{os.environ['MASTER_PORT']}")
    if rank == 0:
        store.create()
    dist.barrier()
    encoder, step = Encoder(), 0
    for epoch in range(2):
        feed = BackgroundFeed(store, store.names()[rank::world], batch=2)
        for wave in feed:
            loss = encoder.step(wave)
            step += 1
        if rank == 0:
            log.info("epoch %d after %d steps: %.4f", epoch, step, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
