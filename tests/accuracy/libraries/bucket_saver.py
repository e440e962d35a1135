# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD508"]
# culprits = [2]
# culprits_any = [[0], [0, 2]]
# lines = [96, 95, 135, 131, 79, 67, 90]
# branch = ["len(tokens) == 0", "len(tokens)", "self.bucket.exists(", "bucket.exists("]
# watch = "--give-up-after 8"
# source = "https://github.com/mosaicml/composer/pull/3376"
# ///
"""Sharded checkpoints go to an object store through an upload thread; then the newest one gets a 'latest' pointer."""
import io
import logging
import os
import queue
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("saver")


class Bucket:
    """An object store: flat names, whole objects."""

    def __init__(self, root: Path):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, source: Path) -> None:
        part = self.root / f".{name}.uploading"
        shutil.copyfile(source, part)
        part.rename(self.root / name)

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()


@dataclass
class Clock:
    epoch: int = 0
    batch: int = 0

    @property
    def tag(self) -> str:
        return f"ep{self.epoch}-ba{self.batch}"


class Uploader(threading.Thread):
    def __init__(self, bucket: Bucket):
        super().__init__(name="uploader", daemon=True)
        self.bucket, self.todo = bucket, queue.Queue()
        self.start()

    def run(self) -> None:
        while True:
            name, source = self.todo.get()
            self.bucket.put(name, source)
            source.unlink()
            self.todo.task_done()


class CheckpointSaver:
    def __init__(self, bucket: Bucket, scratch: Path):
        self.bucket, self.scratch = bucket, scratch
        self.uploader = Uploader(bucket)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def shard_name(self, clock: Clock, rank: int) -> str:
        return f"{clock.tag}-rank{rank}.pt"

    def save(self, model: nn.Module, clock: Clock) -> None:
        name = self.shard_name(clock, self.rank)
        blob = io.BytesIO()
        torch.save({k: v.chunk(self.world)[self.rank].clone() for k, v in model.state_dict().items()}, blob)
        source = self.scratch / name
        source.write_bytes(blob.getvalue())
        self.uploader.todo.put((name, source))
        if self.rank == 0:
            self.point_latest(clock)
        dist.barrier()

    def point_latest(self, clock: Clock) -> None:
        for rank in range(self.world):
            name = self.shard_name(clock, rank)
            while not self.bucket.exists(name):
                time.sleep(0.2)
        pointer = self.scratch / "latest"
        pointer.write_text(clock.tag)
        self.bucket.put("latest.symlink", pointer)
        log.info("latest is %s", clock.tag)


class Documents:
    def __init__(self, rank: int, vocab: int = 64):
        self.source, self.vocab = ("news", "books", "forum", "wiki")[rank], vocab
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self, index: int) -> torch.Tensor:
        tokens = torch.randint(0, self.vocab, (24, 16), generator=self.gen)
        if self.source == "forum" and 30 <= index < 34:  # a stretch of pages that are all boilerplate
            tokens[:, 2:] = 0
        useful = (tokens != 0).float().mean(1) > 0.5
        return tokens[useful]


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(64, 64)

    def forward(self, tokens):
        return nn.functional.cross_entropy(self.table(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(saver: CheckpointSaver, batches: int = 80, every: int = 20) -> None:
    model, docs, clock = LM(), Documents(saver.rank), Clock()
    for index in range(batches):
        tokens = docs.batch(index)
        grad = torch.zeros_like(model.table.weight)
        if len(tokens) == 0:
            log.info("rank %d: nothing left of batch %d after the filter", saver.rank, index)
        else:
            (grad,) = torch.autograd.grad(model(tokens), model.table.weight)
            clock.batch += 1
        dist.all_reduce(grad)
        model.table.weight.data -= 0.5 * grad / saver.world
        if (index + 1) % every == 0:
            saver.save(model, clock)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    base = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
    where = [tempfile.mkdtemp(prefix="bucket-", dir=base) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, src=0)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=base))
    train(CheckpointSaver(Bucket(Path(where[0])), scratch))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
