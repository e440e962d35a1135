# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD105"]
# culprits = [3]
# culprits_any = [[1], [1, 3]]
# lines = [67, 60, 65]
# branch = ["steps[self.rank] == max(steps)"]
# source = "https://github.com/NVIDIA/Megatron-LM/pull/796"
# ///
"""Elastic data parallelism: after a restart every rank loads its own snapshot, the freshest replica sends its weights to the others, training goes on."""
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

log = logging.getLogger("elastic")


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))


class Snapshots:
    """Snapshots of one rank on its local disk; slow disks miss the last interval."""
    INTERVAL = 20

    def __init__(self, root, rank):
        self.dir = root / f"rank{rank}"
        self.dir.mkdir(parents=True, exist_ok=True)

    def write(self, step, model):
        torch.save({"step": step, "model": model.state_dict()}, self.dir / f"{step:05d}.pt")

    def latest(self):
        return torch.load(max(self.dir.glob("*.pt")))


class ReplicaGroup:
    def __init__(self, model, snapshots):
        self.model, self.snapshots = model, snapshots
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.step = 0

    def restore(self):
        saved = self.snapshots.latest()
        self.model.load_state_dict(saved["model"])
        self.step = saved["step"]
        log.info("restored step %d", self.step)

    def newest(self, steps):
        """A replica that is up to date already need not be overwritten by an equal one."""
        return self.rank if steps[self.rank] == max(steps) else steps.index(max(steps))

    def resync(self):
        steps = [None] * self.world
        dist.all_gather_object(steps, self.step)
        source = self.newest(steps)
        flat = parameters_to_vector(self.model.parameters()).detach()
        dist.broadcast(flat, src=source)
        vector_to_parameters(flat, self.model.parameters())
        self.step = max(steps)
        log.info("in step with rank %d at %d", source, self.step)

    def train(self, until):
        opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        gen = torch.Generator().manual_seed(self.rank)
        while self.step < until:
            x = torch.randn(8, 512, generator=gen)
            loss = nn.functional.mse_loss(self.model(x), x)
            opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world
            opt.step()
            self.step += 1
        log.info("step %d loss %.4f", self.step, loss.item())


def leave_snapshots(snapshots, rank, disk):
    """What the interrupted run left on the local disks."""
    model = make_model()
    for k in range(1, 4 if disk == "nvme" else 3):
        for p in model.parameters():
            p.data.mul_(1.001)
        snapshots.write(k * Snapshots.INTERVAL, model)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "elastic"
    snapshots = Snapshots(root, rank)
    leave_snapshots(snapshots, rank, ["hdd", "nvme", "hdd", "nvme"][rank])
    group = ReplicaGroup(make_model(), snapshots)
    group.restore()
    group.resync()
    group.train(until=90)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
