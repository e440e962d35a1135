# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD508", "HD103"]
# culprits_any = [[3], [0]]
# lines = [40, 55, 56, 60, 61, 66, 68, 80, 82]
# branch = ["except", "self.complete", "OSError", "self.writes"]
# source = "https://github.com/pytorch/torchtitan/issues/3065"
# ///
"""Sharded checkpoint over a network disk: every rank writes its shard and a marker, rank 0 polls until all markers are there and then
publishes. The last rank's write failed, which it only logged, so its marker never comes."""
import errno
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ckpt")


@dataclass
class CheckpointConfig:
    root: Path
    poll: float = 0.5
    quota: dict = None


class Storage:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.writes = cfg, rank, 0

    def put(self, path, payload):
        self.writes += 1
        if self.writes > self.cfg.quota.get(self.rank, 10**6):
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        torch.save(payload, path)


class Saver:
    def __init__(self, cfg):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.storage = Storage(cfg, self.rank)

    def complete(self, folder):
        return len(list(folder.glob("*.done"))) == self.world

    def write_shard(self, folder, model):
        try:
            self.storage.put(folder / f"shard{self.rank}.pt", model.state_dict())
            (folder / f"rank{self.rank}.done").touch()
        except OSError as error:
            log.error("rank %d: %s", self.rank, error)

    def wait_for_all(self, folder):
        while not self.complete(folder):
            time.sleep(self.cfg.poll)

    def save(self, model, step):
        folder = self.cfg.root / f"step{step}"
        folder.mkdir(parents=True, exist_ok=True)
        self.write_shard(folder, model)
        if self.rank == 0:
            self.wait_for_all(folder)
            (folder / "LATEST").write_text(str(step))


def main():
    dist.init_process_group("gloo")
    root = [tempfile.mkdtemp(prefix="ckpt-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(root, src=0)
    saver, model = Saver(CheckpointConfig(Path(root[0]), quota={3: 2})), nn.Linear(4, 4)
    for step in range(20):
        model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        if step % 4 == 0:
            saver.save(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
