# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD106", "HD101"]
# culprits = [3]
# culprits_any = [[3], [0, 1, 2]]
# lines = [59, 60, 66, 72, 73, 118, 132]
# branch = ["need > self.disk.free()"]
# source = "https://github.com/pytorch/pytorch/issues/122529"
# ///
"""Distributed checkpoint loading through a reader that stages files on the node first."""
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

log = logging.getLogger("dcp")


@dataclass
class ScratchDisk:
    """The node's scratch space, with a quota in bytes."""

    path: Path
    quota: int

    def used(self) -> int:
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def free(self) -> int:
        return self.quota - self.used()

    def leave_old_runs(self, n: int) -> None:
        for k in range(n):
            (self.path / f"core.{k}").write_bytes(b"\0" * 40_000)


class StagedReader(FileSystemReader):
    """Copies the files that a plan needs to the scratch disk, then reads from there."""

    def __init__(self, path, disk: ScratchDisk):
        super().__init__(path)
        self.source, self.disk = Path(path), disk

    def _files(self, plan) -> list:
        return sorted({self.storage_data[item.storage_index].relative_path for item in plan.items})

    def _reserve(self, names: list) -> None:
        need = sum((self.source / n).stat().st_size for n in names)
        if need > self.disk.free():
            raise OSError(28, f"no room for {need} bytes in {self.disk.path}")

    def _agree_on_order(self, names: list) -> list:
        every = [None] * dist.get_world_size()
        for src in range(dist.get_world_size()):
            box = [names if src == dist.get_rank() else None]
            dist.broadcast_object_list(box, src=src)
            every[src] = box[0]
        return every

    def read_data(self, plan, planner):
        names = self._files(plan)
        self._reserve(names)
        order = self._agree_on_order(names)
        log.info("rank %d: %d files of %d", dist.get_rank(), len(names), len(set(sum(order, []))))
        for name in names:
            shutil.copyfile(self.source / name, self.disk.path / name)
        return super().read_data(plan, planner)


class Net(torch.nn.Module):
    def __init__(self, dim: int = 96):
        super().__init__()
        self.a = torch.nn.Linear(dim, dim)
        self.b = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Job:
    def __init__(self, base: Path):
        self.base = base
        self.net = Net()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        rank = dist.get_rank()
        scratch = base / f"scratch{rank}"
        scratch.mkdir(parents=True)
        self.disk = ScratchDisk(scratch, quota=400_000)
        self.disk.leave_old_runs(int(os.environ.get("OLD_CORES", "0")) or rank * rank)

    def state(self) -> dict:
        return {"net": self.net.state_dict(), "step": torch.tensor(7)}

    def train(self, steps: int) -> None:
        for _ in range(steps):
            loss = self.net(torch.randn(4, 96)).square().mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
            self.opt.step()

    def save(self) -> None:
        dcp.save(self.state(), storage_writer=FileSystemWriter(self.base / "ckpt"))

    def load(self) -> None:
        state = self.state()
        dcp.load(state, storage_reader=StagedReader(self.base / "ckpt", self.disk))
        self.net.load_state_dict(state["net"])


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    box = [tempfile.mkdtemp(prefix=f"dcp-{os.environ['MASTER_PORT']}-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    job = Job(Path(box[0]))
    job.train(5)
    job.save()
    log.info("rank %d saved", dist.get_rank())
    try:
        job.load()
    except dcp.api.CheckpointException as exc:
        log.error("rank %d: %s", dist.get_rank(), exc)
    job.train(5)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
