# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD305", "HD701"]
# culprits = [3]
# culprits_any = [[0]]
# lines = [56, 57, 58, 60, 64, 68, 94]
# branch = ["self.owned"]
# source = "https://github.com/google/orbax/issues/392"
# ///
"""Trains with asynchronous sharded snapshots: every rank writes its part, the coordinator commits a manifest once all parts are there."""
import json
import logging
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("snapshot")


class Partition:
    """Which of the model's tensors a rank writes: greedy by size."""

    def __init__(self, sizes: dict, world: int):
        loads, self.by_rank = [0] * world, [[] for _ in range(world)]
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            target = loads.index(min(loads))
            loads[target] += size
            self.by_rank[target].append(name)

    def of(self, rank: int) -> list:
        return self.by_rank[rank]


class SnapshotCommitter:
    def __init__(self, folder: Path, store, rank: int, world: int):
        self.folder, self.rank, self.world = folder, rank, world
        self.store, self.watch = store.clone(), store.clone()    # a client each for writing and for waiting
        self.coordinator = rank == 0
        self.background = ThreadPoolExecutor(max_workers=4, thread_name_prefix="snapshot")
        self.owned = []

    def assign(self, state: dict):
        sizes = {name: tensor.numel() for name, tensor in state.items()}
        self.owned = Partition(sizes, self.world).of(self.rank)
        log.info("owns %s", self.owned)

    def save(self, step: int, state: dict):
        if self.coordinator:
            self.background.submit(self._commit, step)
        if not self.owned:
            return
        frozen = {name: state[name].detach().clone() for name in self.owned}
        self.background.submit(self._write, step, frozen)

    def _write(self, step: int, tensors: dict):
        torch.save(tensors, self.folder / f"step{step}-part{self.rank}.pt")
        self.store.set(f"snapshot/{step}/{self.rank}", "written")

    def _commit(self, step: int):
        keys = [f"snapshot/{step}/{member}" for member in range(self.world)]
        self.watch.wait(keys, timedelta(hours=1))
        manifest = {"step": step, "parts": sorted(p.name for p in self.folder.glob(f"step{step}-part*.pt"))}
        (self.folder / f"step{step}.json").write_text(json.dumps(manifest))
        log.info("committed step %d", step)


class TinyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.randn(512, 16))
        self.mix = torch.nn.Parameter(torch.randn(16, 16))
        self.scale = torch.nn.Parameter(torch.ones(16))

    def forward(self, index):
        return (self.embedding[index] @ self.mix * self.scale).pow(2).mean()


def train(model, committer: SnapshotCommitter, steps: int, every: int):
    committer.assign(model.state_dict())
    for step in range(1, steps + 1):
        loss = model(torch.randint(0, 512, (32,)))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients):
            dist.all_reduce(gradient)
            parameter.data.sub_(gradient, alpha=1e-3)
        if step % every == 0:
            committer.save(step, model.state_dict())
    log.info("trained %d steps, loss %.4f", steps, loss.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "snapshots"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    store = dist.distributed_c10d._get_default_store()
    train(TinyModel(), SnapshotCommitter(folder, store, rank, world), steps=40, every=20)
    dist.barrier()
    dist.destroy_process_group()
    log.info("done")


if __name__ == "__main__":
    main()
