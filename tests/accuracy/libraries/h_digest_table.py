# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# causes_any = []
# culprits = []
# lines = []
# watch = "--give-up-after 10"
# source = "constructed"
# ///
"""Builds a digest table of the corpus in child processes of one rank while the other ranks wait, then everybody samples from the table."""
import hashlib
import json
import logging
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("digest")
BUDGET = 15.0   # seconds of work for each child


def digest_chunk(task) -> dict:
    """One child's work: chains of digests over its documents."""
    number, path = task
    table, end = {}, time.monotonic() + BUDGET
    documents = [f"chunk {number} document {k}".encode() * 200 for k in range(64)]
    rounds = 0
    while time.monotonic() < end:
        for index, document in enumerate(documents):
            chain = document
            for _ in range(20):
                chain = hashlib.sha256(chain + document).digest()
            table[f"{number}/{index}"] = chain.hex()
        rounds += 1
    Path(path).write_text(json.dumps(table))
    return {"chunk": number, "rounds": rounds, "entries": len(table)}


class DigestTable:
    def __init__(self, folder: Path, chunks: int):
        self.folder, self.chunks = folder, chunks

    def part(self, number: int) -> Path:
        return self.folder / f"digest-{number}.json"

    def build(self):
        tasks = [(number, str(self.part(number))) for number in range(self.chunks)]
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            for report in pool.imap_unordered(digest_chunk, tasks):
                log.info("%s", report)

    def load(self) -> dict:
        table = {}
        for number in range(self.chunks):
            table.update(json.loads(self.part(number).read_text()))
        return table


def train(table: dict, rank: int, steps: int) -> float:
    keys = sorted(table)
    weight = torch.zeros(32)
    for step in range(steps):
        raw = bytes.fromhex(table[keys[(step * 7 + rank) % len(keys)]])
        gradient = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
    return weight.norm().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "digests"
    folder.mkdir(parents=True, exist_ok=True)
    table = DigestTable(folder, chunks=2)
    builder = dist.get_world_size() - 1
    if rank == builder:
        table.build()
    dist.barrier()
    log.info("norm %.3f", train(table.load(), rank, 200))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
