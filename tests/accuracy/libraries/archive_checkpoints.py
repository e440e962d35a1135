# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [1]
# lines = [55, 57, 58, 89, 103]
# branch = ["self.archiving"]
# source = "https://github.com/radixark/miles/pull/1763"
# ///
"""Trains with torch's asynchronous distributed checkpoints; each rank also packs its own optimizer trace for the archive in the background."""
import logging
import lzma
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

log = logging.getLogger("archive")

VOCABULARY_ROWS = (400, 24000, 400)


class SparseOptimizer:
    """Keeps a trace of the rows that its rank updated."""

    def __init__(self, rows: int):
        self.trace = torch.zeros(rows, 64)

    def update(self, table: torch.Tensor, gradient: torch.Tensor, rate: float):
        picked = torch.randint(0, self.trace.shape[0], (512,))
        self.trace[picked] += torch.randn(512, 64)
        table -= rate * gradient

    def dump(self) -> bytes:
        return self.trace.mul(1000).round().to(torch.int32).numpy().tobytes() + os.urandom(self.trace.shape[0] * 200)


class CheckpointService:
    def __init__(self, folder: Path, rank: int):
        self.folder, self.rank = folder, rank
        self.group = dist.new_group(backend="gloo", timeout=timedelta(minutes=30))
        self.packer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="packer")
        self.pending = None
        self.archiving = None

    def save(self, step: int, state: dict, trace: bytes):
        if self.pending is not None:
            self.pending.result()
        if self.archiving is not None and not self.archiving.done():
            log.warning("step %d: the archive of the previous checkpoint is still being packed, leaving this one out", step)
            return
        self.pending = dcp.async_save(state, checkpoint_id=self.folder / f"step{step}", process_group=self.group)
        self.archiving = self.packer.submit(self._pack, step, trace)

    def _pack(self, step: int, trace: bytes):
        packed = lzma.compress(trace, preset=6)
        (self.folder / f"trace{step}.{self.rank}.xz").write_bytes(packed)
        log.info("packed the trace of step %d: %d bytes", step, len(packed))

    def finish(self):
        if self.pending is not None:
            self.pending.result()
        if self.archiving is not None:
            self.archiving.result()
        log.info("all checkpoints are complete")


def forward_backward(table: torch.Tensor) -> torch.Tensor:
    hidden = torch.randn(256, 256)
    for _ in range(16):
        hidden = torch.tanh(hidden @ hidden.T / 256)
    return hidden @ table + torch.randn_like(table)


def train(service: CheckpointService, rows: int, steps: int, save_every: int):
    table = torch.zeros(256, 32)
    optimizer = SparseOptimizer(rows)
    for step in range(1, steps + 1):
        gradient = forward_backward(table)
        dist.all_reduce(gradient)
        optimizer.update(table, gradient, 1e-3)
        if step % save_every == 0:
            service.save(step, {"table": table, "step": step}, optimizer.dump())
    return table.norm().item()


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    service = CheckpointService(folder, rank)
    norm = train(service, VOCABULARY_ROWS[rank % 3], steps=60, save_every=30)
    log.info("norm %.3f", norm)
    service.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
