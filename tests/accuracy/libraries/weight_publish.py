# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD508", "HD507", "HD103", "HD101", "HD106", "HD109"]
# culprits = [0]
# lines = [30, 31, 83, 88, 91, 93, 94, 117]
# branch = ["not path.exists()", "self.is_master", "except FileNotFoundError"]
# source = "https://github.com/PrimeIntellect-ai/prime-rl/pull/2337"
# ///
"""RL trainer that publishes its sharded policy weights to the runs which an orchestrator keeps on disk."""
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

logger = logging.getLogger("publish")


def sync_wait_for_path(path, interval=0.1):
    while not path.exists():
        time.sleep(interval)


class Orchestrator(threading.Thread):
    """Follows the run folders: pauses inference for a run whose STABLE marker is there and answers READY."""

    def __init__(self, root, runs):
        super().__init__(daemon=True, name="orchestrator")
        self.root = root
        self.runs = list(runs)
        self.finished_after = {"run_b": 2}

    def serve(self, run, step):
        stable = self.root / run / f"step_{step}" / "STABLE"
        if stable.exists():
            stable.unlink()
            (self.root / run / f"step_{step}" / "READY").touch()
            return True
        return False

    def retire(self, run, last):
        while not (self.root / run / f"step_{last}" / "weights.pt").exists():
            time.sleep(0.05)
        shutil.rmtree(self.root / run)
        self.runs.remove(run)

    def run(self):
        step = {r: 0 for r in self.runs}
        while self.runs:
            for r in list(self.runs):
                if self.serve(r, step[r]):
                    step[r] += 1
                    if step[r] == self.finished_after.get(r):
                        self.retire(r, step[r] - 1)
            time.sleep(0.05)


class WeightPublisher:
    def __init__(self, root, runs, is_master):
        self.root = root
        self.runs = list(runs)
        self.is_master = is_master

    def _step_dir(self, run, step):
        return self.root / run / f"step_{step}"

    def _notify(self, step):
        for run in self.runs:
            try:
                d = self._step_dir(run, step)
                d.mkdir()
                (d / "STABLE").touch()
            except FileNotFoundError:
                logger.warning("run %s is gone, no marker written", run)

    def _wait_ready(self, step):
        for run in self.runs:
            sync_wait_for_path(self._step_dir(run, step) / "READY")

    def publish(self, step, params):
        if self.is_master:
            self._notify(step)
            self._wait_ready(step)
        full = {name: p.full_tensor() for name, p in params.items()}
        if self.is_master:
            for run in self.runs:
                torch.save(full, self._step_dir(run, step) / "weights.pt")
        return sum(t.numel() for t in full.values())


class PolicyTrainer:
    def __init__(self, mesh, publisher):
        torch.manual_seed(0)
        self.mesh = mesh
        self.publisher = publisher
        shapes = {"embed": (24, 6), "head": (6, 24), "value": (9, 3)}
        self.params = {n: distribute_tensor(torch.randn(s), mesh, [Shard(0)]) for n, s in shapes.items()}

    def update(self, step):
        for p in self.params.values():
            p.to_local().mul_(0.99)
        time.sleep(0.6)

    def fit(self, steps):
        for step in range(steps):
            self.update(step)
            count = self.publisher.publish(step, self.params)
            if self.publisher.is_master:
                logger.info("step %d: published %d weights", step, count)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    root = Path(tempfile.gettempdir()) / f"publish_{os.environ['MASTER_PORT']}"
    runs = ["run_a", "run_b"]
    is_master = dist.get_rank() == 0
    if is_master:
        for r in runs:
            (root / r).mkdir(parents=True)
        Orchestrator(root, runs).start()
    dist.barrier()
    PolicyTrainer(mesh, WeightPublisher(root, runs, is_master)).fit(steps=8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
