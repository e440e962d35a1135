# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# causes_any = []
# culprits = []
# lines = []
# watch = "--give-up-after 10"
# source = "own"
# ///
"""Readers of very different length train together under the Join context; afterwards every rank exports its part and leaves when it is done."""
import logging
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("readers")
ROWS = (40, 90, 60, 150)
EXPORT_SECONDS = (3.0, 9.0, 5.0, 16.0)


class Reader:
    """Batches of one rank; each needs some computing before it can be used."""

    def __init__(self, rank):
        self.rank = rank
        self.gen = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for _ in range(ROWS[self.rank]):
            raw = torch.randn(64, 32, generator=self.gen)
            until = time.monotonic() + 0.13
            while time.monotonic() < until:
                raw = torch.tanh(raw @ raw.t() @ raw / 64)
            yield raw


def share_statistics(rank, groups):
    """Even and odd ranks take turns as the source; the pairs compare notes among themselves."""
    value = torch.zeros(4)
    for turn in range(4):
        if rank == turn:
            value = torch.full((4,), float(turn * turn))
            dist.broadcast(value, src=turn)
        else:
            incoming = torch.empty(4)
            dist.broadcast(incoming, src=turn)
            value = value + incoming
    mine = groups[rank % 2]
    for _ in range(3 if rank % 2 else 5):
        dist.all_reduce(value, group=mine)
        value /= 2
    if rank in (0, 3):
        peer = 3 - rank
        other = torch.empty(4)
        if rank == 0:
            dist.send(value, dst=peer)
            dist.recv(other, src=peer)
        else:
            dist.recv(other, src=peer)
            dist.send(value, dst=peer)
    return value


def export(model, rank, folder):
    """Compresses the weights with ever other settings and keeps the smallest file."""
    blob = b"".join(p.detach().numpy().tobytes() for p in model.parameters()) * 20
    best, until, tries = None, time.monotonic() + EXPORT_SECONDS[rank], 0
    while time.monotonic() < until:
        packed = zlib.compress(blob, 1 + tries % 9)
        if best is None or len(packed) < best:
            best = len(packed)
            (folder / f"part_{rank}.z").write_bytes(packed)
        tries += 1
    log.info("%d bytes after %d tries", best, tries)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(asctime)s %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"readers-{os.environ['MASTER_PORT']}"
    folder.mkdir(parents=True, exist_ok=True)
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    share_statistics(rank, groups)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    model = DistributedDataParallel(module)
    seen = 0
    with Join([model]):
        for batch in Reader(rank):
            loss = model(batch).pow(2).mean()
            loss.backward()
            with torch.no_grad():
                for p in module.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None
            seen += 1
    log.info("joined after %d batches", seen)
    dist.barrier()
    export(module, rank, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
