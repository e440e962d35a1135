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
"""Rank 0 builds the token shards in child processes while the others wait; then all train, and rank 0 packs the result with a child again."""
import hashlib
import logging
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("shards")
SHARDS = 8
POOL = 2
BUILD_SECONDS = 18.0
TRAIN_SECONDS = 10.0
PACK_SECONDS = 13.0


def build_shard(path, number, seconds):
    """Hashes synthetic documents into token ids until the shard's share of time is over."""
    until = time.monotonic() + seconds
    rows, block = [], str(number).encode()
    with open(path, "wb") as out:
        while time.monotonic() < until or len(rows) < 400:
            for _ in range(200):
                block = hashlib.sha256(block).digest()
            rows.append(block)
            out.write(block)
            if len(rows) % 50 == 0:
                out.flush()
    return len(rows)


def pack(folder, seconds):
    """Checks every shard again and again against its checksum, as the archive demands."""
    until = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < until:
        for shard in sorted(Path(folder).glob("shard_*.bin")):
            hashlib.blake2b(shard.read_bytes() * 2).hexdigest()
        rounds += 1
    return rounds


class ShardStore:
    def __init__(self, root, pool):
        self.root, self.pool = Path(root), pool

    def build(self):
        self.root.mkdir(parents=True, exist_ok=True)
        seconds = BUILD_SECONDS * POOL / SHARDS
        jobs = [(str(self.root / f"shard_{n:02d}.bin"), n, seconds) for n in range(SHARDS)]
        rows = self.pool.starmap(build_shard, jobs, chunksize=1)
        log.info("%d shards, %d rows", SHARDS, sum(rows))

    def pack(self):
        log.info("packed after %d rounds", self.pool.apply(pack, (str(self.root), PACK_SECONDS)))

    def read(self, rank, world):
        rows = b"".join((self.root / f"shard_{n:02d}.bin").read_bytes()[:12800] for n in range(rank, SHARDS, world))
        return torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(-1, 32).float() / 255


def train(tokens, rank):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(31, 64), nn.ReLU(), nn.Linear(64, 1))
    started, step, go_on = time.monotonic(), 0, torch.ones(1)
    while True:
        rows = tokens[torch.randint(0, len(tokens), (64,))]
        loss = nn.functional.mse_loss(model(rows[:, :31]), rows[:, 31:])
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                dist.all_reduce(g)
                p -= 0.05 * g / dist.get_world_size()
        step += 1
        go_on[0] = float(time.monotonic() - started < TRAIN_SECONDS)
        dist.broadcast(go_on, src=0)
        if not go_on.item():
            return model, step


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(asctime)s %(message)s")
    pool = multiprocessing.get_context("fork").Pool(POOL) if rank == 0 else None
    dist.init_process_group("gloo")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"shards-{os.environ['MASTER_PORT']}"
    store = ShardStore(root, pool)
    if rank == 0:
        store.build()
    dist.barrier()
    model, steps = train(store.read(rank, world), rank)
    log.info("%d steps", steps)
    if rank == 0:
        torch.save(model.state_dict(), root / "model.pt")
        store.pack()
        pool.close()
        pool.join()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
