# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD504", "HD507", "HD508"]
# culprits = [2]
# lines = [38, 51, 52, 58, 67, 79]
# branch = ["baton.try_acquire()"]
# source = "pytorch/pytorch#189245 (PR #190543, #170679)"
# ///
"""Every node builds its small native helpers once, into a cache folder that survives the job, then training begins."""
import argparse
import ctypes
import hashlib
import logging
import os
import pathlib
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

log = logging.getLogger("kernels")
SOURCE = "float scale(float x) { return 0.5f * x; }\n"


class KernelCache:
    """Sources and their builds; what an earlier job has built is taken from the node's archive."""

    def __init__(self, node, root):
        self.node = node
        self.folder = pathlib.Path(root) / f"node{node}" / "kernels"

    def restore(self, archive):
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in archive.items():
            (self.folder / name).write_text(content)

    def key(self, source):
        return hashlib.sha256(source.encode()).hexdigest()[:12]

    def compile(self, source, target):
        target.with_suffix(".c").write_text(source)
        target.write_text(f"built {self.key(source)}")

    def load(self, name, source):
        target = self.folder / f"{name}-{self.key(source)}.so"
        if target.exists():
            return target.read_text()
        baton = FileBaton(str(self.folder / "lock"))
        if baton.try_acquire():
            try:
                self.compile(source, target)
            finally:
                baton.release()
        else:
            baton.wait()
        return target.read_text()


def archives(nodes):
    """The state in which the previous job left each node's folder; the batch system ended that job at its time limit."""
    saved = [{} for _ in range(nodes)]
    for node, archive in enumerate(saved):
        archive["build.ninja"] = "rule compile\n"
    saved[-1].update({"lock": "", "scale.c": SOURCE[:20]})
    return saved


class Trainer:
    def __init__(self, rank, cache):
        self.rank, self.cache = rank, cache
        self.model = torch.nn.Linear(16, 16)
        self.helpers = {}

    def prepare(self):
        for name in ("scale", "clip"):
            self.helpers[name] = self.cache.load(name, SOURCE.replace("scale", name))
        dist.barrier()

    def fit(self, steps):
        for _ in range(steps):
            loss = self.model(torch.randn(4, 16)).square().mean()
            loss.backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad = None
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    node, nodes = rank // args.ranks_per_node, world // args.ranks_per_node
    root = pathlib.Path(tempfile.gettempdir()) / f"kernel-cache-{os.environ['MASTER_PORT']}"
    cache = KernelCache(node, root)
    cache.restore(archives(nodes)[node])
    trainer = Trainer(rank, cache)
    trainer.prepare()
    log.info("pointers have %d bytes, loss %.3f", ctypes.sizeof(ctypes.c_void_p), trainer.fit(args.steps))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(root, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
