# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD701", "HD103"]
# culprits = [3]
# lines = [70, 59, 74, 77, 58, 100, 111, 115]
# branch = ["digest != crc", "size == 0", "rows in pipeline"]
# source = "https://github.com/facebookresearch/spdl/pull/1591"
# ///
"""Trains a bag-of-bytes classifier on records that an asyncio pipeline reads and decodes on a thread of its own."""
import asyncio
import logging
import os
import struct
import tempfile
import threading
import zlib
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("stream")
HEAD = struct.Struct("<IIB")
BLOCK, MIRRORS = 4096, ("fra", "fra", "ams", "syd")


class CorruptRecord(ValueError):
    pass


class RecordFile:
    """Length, checksum, label, payload; padded to whole blocks like the object store hands them out."""

    @staticmethod
    def write(path: Path, rank: int, rows: int = 900) -> Path:
        gen = torch.Generator().manual_seed(rank)
        parts = []
        for i in range(rows):
            size = int(torch.randint(16, 200, (), generator=gen))
            payload = bytes(torch.randint(0, 256, (size,), generator=gen, dtype=torch.uint8).tolist())
            parts.append(HEAD.pack(size, zlib.crc32(payload), i % 4) + payload)
        blob = bytearray(b"".join(parts))
        if MIRRORS[rank] == "syd":  # this mirror resumes an interrupted copy at the next whole block
            cut = len(blob) // 2 // BLOCK * BLOCK
            blob[cut : cut + BLOCK] = bytes(BLOCK)
        path.write_bytes(blob)
        return path

    @staticmethod
    def records(blob: bytes):
        at = 0
        while at + HEAD.size <= len(blob):
            size, crc, label = HEAD.unpack_from(blob, at)
            payload = blob[at + HEAD.size : at + HEAD.size + size]
            digest = zlib.crc32(payload)
            if size == 0 or digest != crc:
                raise CorruptRecord(f"record at byte {at}: size {size}, checksum {digest:08x}, expected {crc:08x}")
            yield label, payload
            at += HEAD.size + size


class Pipeline:
    """Reads ahead on an event loop in the background; hands batches over one by one."""

    def __init__(self, path: Path, batch: int = 16):
        self.path, self.batch = path, batch
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._spin, name="pipeline-loop")

    def _spin(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def start(self) -> "Pipeline":
        self.thread.start()
        self.source = self._batches()
        return self

    async def _batches(self):
        blob = await asyncio.to_thread(self.path.read_bytes)
        rows = []
        for label, payload in RecordFile.records(blob):
            rows.append((label, payload))
            if len(rows) == self.batch:
                yield rows
                rows = []
                await asyncio.sleep(0)

    def __iter__(self):
        while True:
            step = asyncio.run_coroutine_threadsafe(anext(self.source, None), self.loop)
            rows = step.result()
            if rows is None:
                return
            yield rows

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def collate(rows) -> tuple:
    x = torch.stack([torch.bincount(torch.frombuffer(bytearray(p), dtype=torch.uint8), minlength=256) for _, p in rows])
    return x.float() / x.sum(1, keepdim=True), torch.tensor([label for label, _ in rows])


def fit(pipeline: Pipeline) -> int:
    weight, steps = torch.zeros(256, 4, requires_grad=True), 0
    for rows in pipeline:
        x, y = collate(rows)
        loss = torch.nn.functional.cross_entropy(x @ weight, y)
        (grad,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(grad)
        weight.data -= 0.1 * grad / dist.get_world_size()
        steps += 1
    return steps


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"records{rank}-", dir=os.environ.get("TMPDIR")))
    pipeline = Pipeline(RecordFile.write(folder / "part.rec", rank)).start()
    steps = fit(pipeline)
    log.info("rank %d: %d steps", rank, steps)
    pipeline.stop()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
