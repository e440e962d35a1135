# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD504", "HD508"]
# culprits = [3]
# culprits_any = [[2], [2, 3]]
# lines = [77, 72, 71, 54, 59, 76, 91]
# branch = ["self.builder", "artefact.exists()", "helper.is_alive()", "self.lock_file_path"]
# watch = "--give-up-after 8"
# source = "https://github.com/sgl-project/sglang/pull/35989"
# ///
"""Each node's first rank builds tuned kernel tables in a helper process, then all ranks load them and train."""
import json
import logging
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

log = logging.getLogger("build")
RANKS_PER_NODE = 2
ARCHES = {0: ["sse4"], 1: ["sse4", "avx512", "amx"]}
CANDIDATES = {"sse4": 60, "avx512": 1400, "amx": 2200}
GENERIC = [{"arch": "generic", "best": 8}]


def tune(arch: str) -> dict:
    """Tries block sizes for one instruction set; pure Python, so that it needs no compiler."""
    size = CANDIDATES[arch]
    table, grid = {}, [(i * 7919) % 1009 / 1009 for i in range(size)]
    for block in range(1, 60):
        acc = 0.0
        for a in grid:
            for b in grid[:: 1 + block // 8]:
                acc += (a - b) * (a - b) / block
        table[block] = acc
    return {"arch": arch, "best": min(table, key=table.get)}


class KernelCache:
    def __init__(self, node: int, builder: bool, budget: float = 4.0):
        root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"node{node}" / "kernels"
        root.mkdir(parents=True, exist_ok=True)
        self.artefact, self.baton = root / "tables.json", FileBaton(str(root / "lock"))
        self.builder, self.budget = builder, budget

    def _build(self, arches: list[str]) -> None:
        if self.baton.try_acquire():
            try:
                tables = [tune(arch) for arch in arches]
                self._publish(tables)
            finally:
                self.baton.release()

    def _publish(self, tables: list[dict]) -> None:
        part = self.artefact.with_suffix(".part")
        part.write_text(json.dumps(tables))
        part.rename(self.artefact)

    def ensure(self, arches: list[str]) -> None:
        if self.builder:
            helper = mp.get_context("fork").Process(target=self._build, args=(arches,), name="kernel-tuner")
            helper.start()
            helper.join(self.budget)
            if helper.is_alive():
                helper.kill()
                helper.join()
                log.warning("tuning of %s took over %.0f s, falling back to generic tables", arches, self.budget)
                self._publish(GENERIC)
        while not self.artefact.exists():
            self.baton.wait()
            time.sleep(0.1)

    def load(self) -> list[dict]:
        return json.loads(self.artefact.read_text())


class Worker:
    def __init__(self):
        self.rank = dist.get_rank()
        self.node, local_rank = divmod(self.rank, RANKS_PER_NODE)
        self.cache = KernelCache(self.node, builder=local_rank == 0)

    def prepare(self) -> None:
        self.cache.ensure(ARCHES[self.node])
        dist.barrier()
        tables = self.cache.load()
        log.info("rank %d: %s", self.rank, [t["arch"] for t in tables])

    def train(self, steps: int = 50) -> None:
        weight = torch.zeros(32)
        for _ in range(steps):
            grad = torch.randn(32) + weight
            dist.all_reduce(grad)
            weight -= 0.01 * grad


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    worker = Worker()
    worker.prepare()
    worker.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
