# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD106"]
# culprits = [2]
# lines = [61, 66, 67, 71, 79, 80, 115, 122]
# branch = ["except OSError", "OSError as err"]
# source = "https://github.com/ByteDance-Seed/VeOmni/pull/1164"
# ///
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("ckpt")


@dataclass
class Topology:
    rank: int
    ranks_per_node: int = 2

    @property
    def node(self):
        return self.rank // self.ranks_per_node

    @property
    def is_node_leader(self):
        return self.rank % self.ranks_per_node == 0

    @property
    def is_coordinator(self):
        return self.rank == 0


class StagedCheckpointer:
    """Writes a distributed checkpoint to a local stage, then promotes it to its final place."""

    def __init__(self, root, topo):
        self.root, self.topo = Path(root), topo
        self.failures = 0

    def _paths(self, step):
        return self.root / f"stage_{step}", self.root / f"final_{step}"

    def _copy_node_files(self, stage, final):
        mine = range(self.topo.node * self.topo.ranks_per_node, (self.topo.node + 1) * self.topo.ranks_per_node)
        final.mkdir(parents=True, exist_ok=True)
        for r in mine:
            for piece in sorted(stage.glob(f"__{r}_*.distcp")):
                shutil.copyfile(piece, final / piece.name)

    def _promote(self, stage, final):
        try:
            if self.topo.is_node_leader:
                self._copy_node_files(stage, final)
            dist.barrier()
            if self.topo.is_coordinator:
                shutil.copyfile(stage / ".metadata", final / ".metadata")
        finally:
            dist.barrier()
            if self.topo.is_coordinator:
                shutil.rmtree(stage, ignore_errors=True)

    def save(self, step, state):
        stage, final = self._paths(step)
        try:
            dcp.save(state, checkpoint_id=str(stage))
            self._promote(stage, final)
        except OSError as err:
            self.failures += 1
            log.warning("checkpoint at step %d not kept: %s", step, err)
            return False
        return True


class RetentionPolicy:
    """Reserves the next slot, so that the quota script does not prune it meanwhile."""

    def __init__(self, root, keep_marker):
        self.root, self.marker = Path(root), keep_marker

    def reserve(self, step, name):
        slot = self.root / f"final_{step}" / name
        slot.mkdir(parents=True, exist_ok=True)
        (slot / self.marker).touch()


def build(seed=5):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    return DDP(net)


def run(root, total=18, every=6):
    topo = Topology(dist.get_rank())
    model = build()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    saver, policy = StagedCheckpointer(root, topo), RetentionPolicy(root, ".keep")
    gen = torch.Generator().manual_seed(100 + topo.rank)
    for step in range(1, total + 1):
        x = torch.randn(8, 16, generator=gen)
        loss = (model(x) - x[:, :4]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % every == 0:
            kept = saver.save(step, {"model": model.module.state_dict()})
            log.info("step %d loss %.4f kept=%s", step, loss.item(), kept)
            if topo.is_coordinator:
                policy.reserve(step + every, "__3_0.distcp")
            dist.barrier()


def main():
    dist.init_process_group("gloo")
    root = Path(tempfile.gettempdir()) / f"staged_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    run(root)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
