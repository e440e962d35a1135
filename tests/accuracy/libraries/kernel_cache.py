# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD504", "HD508"]
# culprits = [0]
# lines = [52, 58, 62, 64, 65, 67, 90, 92, 93, 97]
# branch = ["baton.try_acquire()", "subprocess.TimeoutExpired", "rank!=0", "rank==0"]
# watch = "--give-up-after 8"
# source = "https://github.com/nandometzger/metal-gauss/issues/19"
# ///
"""The first rank generates the lookup kernels ahead of the others, which then load them; there is a slow fallback."""
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

log = logging.getLogger("kernels")

GENERATOR = """
import math, sys
size, target = int(sys.argv[1]), sys.argv[2]
table = []
for i in range(size):
    acc = 0.0
    for k in range(1, 4000):
        acc += math.sin(i / size * k) / k
    table.append(acc)
open(target, "w").write("\\n".join(map(repr, table)))
"""


class KernelCache:
    def __init__(self, root, size, patience):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.size, self.patience = size, patience
        self.table = self.root / "sine.tbl"

    def _baton(self):
        return FileBaton(str(self.root / "lock"), 0.2)

    def _generate(self):
        partial = self.table.with_suffix(".part")
        command = [sys.executable, "-c", GENERATOR, str(self.size), str(partial)]
        subprocess.run(command, check=True, timeout=self.patience)
        partial.rename(self.table)

    def load(self):
        """Returns the table, generating it first if need be; None where it cannot be had."""
        baton = self._baton()
        if baton.try_acquire():
            try:
                if not self.table.exists():
                    self._generate()
            except subprocess.TimeoutExpired:
                log.warning("kernel generation took more than %.0f s, using the fallback", self.patience)
                return None
            baton.release()
        else:
            baton.wait()
        return torch.tensor([float(v) for v in self.table.read_text().split()])


class Lookup:
    def __init__(self, table, size):
        self.table, self.size = table, size

    def __call__(self, x):
        if self.table is None:
            k = torch.arange(1, 400).unsqueeze(1)
            return (torch.sin(x.unsqueeze(0) * k) / k).sum(0)
        return self.table[(x * self.size).long().clamp(0, self.size - 1)]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    base = os.environ.get("TMPDIR", tempfile.gettempdir())
    cache = KernelCache(os.path.join(base, f"kernels-{os.getppid()}"), size=200_000, patience=4)
    table = None
    if rank == 0:
        table = cache.load()
    dist.barrier()
    if rank != 0:
        table = cache.load()
    lookup = Lookup(table, cache.size)
    for step in range(10):
        value = lookup(torch.rand(256)).mean()
        dist.all_reduce(value)
        if rank == 0:
            log.info("step %d: %.4f", step, value.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
