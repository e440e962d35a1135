# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [56, 58, 42, 63]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/2422"
# ///
"""Trains with a vocabulary-sharded embedding and lets a helper process pack and describe the rank's checkpoint shard."""
import hashlib
import io
import logging
import multiprocessing as mp
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("packer")


def describe(name, tensor, chunk_rows):
    """One entry per chunk, so that a restore can fetch row ranges."""
    for lo in range(0, tensor.shape[0], chunk_rows):
        part = tensor[lo:lo + chunk_rows]
        buf = io.BytesIO(part.numpy().tobytes())
        yield {"name": name, "rows": [lo, lo + part.shape[0]], "bytes": buf.getbuffer().nbytes,
               "sha256": hashlib.sha256(buf.getbuffer()).hexdigest()}


def pack(shard, path, chunk_rows, results):
    entries = []
    with open(path, "wb") as f:
        for name, tensor in shard.items():
            for entry in describe(name, tensor, chunk_rows):
                f.write(tensor[entry["rows"][0]:entry["rows"][1]].numpy().tobytes())
                entries.append(entry)
    results.put(entries)


class ShardWriter:
    def __init__(self, root, rank, chunk_rows=16):
        self.root, self.rank, self.chunk_rows = root, rank, chunk_rows
        self.context = mp.get_context("fork")
        root.mkdir(parents=True, exist_ok=True)

    def write(self, step, shard):
        results = self.context.Queue()
        path = self.root / f"step{step}-rank{self.rank}.bin"
        worker = self.context.Process(target=pack, args=(shard, path, self.chunk_rows, results), name="pack")
        worker.start()
        worker.join()
        log.info("packed %s (%d bytes)", path.name, path.stat().st_size)
        return results.get()

    def save(self, step, shard):
        entries = self.write(step, shard)
        index = [None] * dist.get_world_size()
        dist.all_gather_object(index, entries)
        return sum(len(e) for e in index)


class ShardedTable(nn.Module):
    """Rows of the word table by script: the CJK shard is the long one."""
    ROWS = {"latin": 1200, "cjk": 21_000, "cyrillic": 900}

    def __init__(self, script, dim=8):
        super().__init__()
        self.rows = self.ROWS[script]
        self.table = nn.Embedding(self.rows, dim)
        self.dense = nn.Linear(dim, dim)

    def forward(self, ids):
        return (self.dense(self.table(ids)) ** 2).mean()

    def shard(self):
        return {"table": self.table.weight.detach(), "dense": self.dense.weight.detach()}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    torch.manual_seed(0)
    model = ShardedTable(list(ShardedTable.ROWS)[rank])
    writer = ShardWriter(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "packed", rank)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, 31):
        loss = model(torch.randint(0, model.rows, (64,), generator=gen))
        model.zero_grad()
        loss.backward()
        for p in model.dense.parameters():
            dist.all_reduce(p.grad)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
        if step % 10 == 0:
            log.info("step %d loss %.4f, %d chunks saved", step, loss.item(), writer.save(step, model.shard()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
