# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD305", "HD101"]
# culprits = [2]
# lines = [32, 37, 38, 39, 45, 54, 63, 92, 94, 96, 97]
# branch = ["self.expected_revision", "session.stale("]
# source = "https://github.com/MoonshotAI/checkpoint-engine/pull/107"
# ///
"""Pushes weight revisions from shard files into the inference ranks; the ranks meet over the job's store between the phases."""
import json
import logging
import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("push")
REVISIONS = 4
MOUNTS = ("direct", "direct", "snapshot", "direct")


class StoreFence:
    """Meeting point on the key-value store, for ranks that must not touch a process group."""

    def __init__(self, store, label: str, members: int):
        self.store, self.label, self.members = store, label, members
        self.visits = 0

    def meet(self):
        key = f"{self.label}/{self.visits}"
        self.visits += 1
        if self.store.add(key, 1) == self.members:
            self.store.set(key + "/open", "1")
        self.store.wait([key + "/open"], timedelta(minutes=20))


class PushSession:
    def __init__(self, store, rank: int, world: int, root: Path, expected_revision: int = 0):
        self.rank, self.root = rank, root
        self.fence = StoreFence(store, "push", world)
        self.expected_revision = expected_revision
        self.buffer = torch.zeros(256)

    def manifest(self) -> dict:
        return json.loads((self.root / f"rank{self.rank}.json").read_text())

    def stale(self) -> bool:
        manifest = self.manifest()
        return manifest['revision'] < self.expected_revision

    def load(self):
        payload = torch.load(self.root / f"rank{self.rank}.pt")
        self.buffer.copy_(payload["weights"])
        self.expected_revision += 1

    def publish(self) -> float:
        norm = self.buffer.norm().reshape(1)
        dist.all_reduce(norm)
        return norm.item()


class ShardWriter:
    """Plays the trainer: drops a new shard for the rank on the volume that the rank mounts."""

    def __init__(self, root: Path, rank: int):
        self.root, self.rank = root, rank
        root.mkdir(parents=True, exist_ok=True)
        self.mount = MOUNTS[rank % len(MOUNTS)]

    def drop(self, revision: int):
        if self.mount == "snapshot":
            revision = 0
        torch.save({"weights": torch.full((256,), float(revision))}, self.root / f"rank{self.rank}.pt")
        (self.root / f"rank{self.rank}.json").write_text(json.dumps({"revision": revision}))


def open_session(store, rank, world, root, revision=0) -> PushSession:
    log.info("opening push session at revision %d", revision)
    return PushSession(store, rank, world, root, revision)


def push_all(store, rank: int, world: int, root: Path):
    writer = ShardWriter(root, rank)
    session = open_session(store, rank, world, root)
    for revision in range(REVISIONS):
        writer.drop(revision)
        if session.stale():
            log.warning("shard is behind revision %d, reconnecting to the volume", revision)
            session = open_session(store, rank, world, root, revision)
        session.load()
        session.fence.meet()
        total = session.publish()
        log.info("revision %d in place, norm %.1f", revision, total)


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    base = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "push"
    store = dist.PrefixStore("fence", dist.distributed_c10d._get_default_store())
    push_all(store, rank, world, base)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
