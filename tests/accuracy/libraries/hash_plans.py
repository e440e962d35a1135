# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD107"]
# culprits = [0]
# culprits_any = [[1, 2], [0, 1, 2]]
# lines = [40, 49, 57, 58, 60, 106]
# source = "https://github.com/MP-Gadget/pfft-python/issues/5"
# ///
"""Spectral solver in the style of distributed FFT packages: named plans with a communicator each, tuned, used and released by all workers."""
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

log = logging.getLogger("spectral")
WORKERS = 3


@dataclass(frozen=True)
class Plan:
    name: str
    size: int
    group: object = field(compare=False, hash=False)

    def transform(self, field_slab):
        spectrum = torch.fft.rfft(field_slab[:, :self.size], dim=1)
        power = spectrum.abs().pow(2).sum(0)
        dist.all_reduce(power, group=self.group)
        return power

    def release(self):
        """All members say goodbye before the buffers are given back."""
        dist.barrier(group=self.group)


class PlanRegistry:
    NAMES = ("density", "velocity", "potential", "displacement", "lensing")

    def __init__(self, members):
        self.plans = {name: Plan(name, 64 + 16 * i, dist.new_group(list(range(members))))
                      for i, name in enumerate(self.NAMES)}
        self.used = set()

    def __getitem__(self, name):
        plan = self.plans[name]
        self.used.add(plan)
        return plan

    def release_idle(self, keep=()):
        idle = {plan for plan in self.used if plan.name not in keep}
        for plan in idle:
            log.info("releasing %s", plan.name)
            plan.release()
        self.used -= idle


class Solver:
    def __init__(self, registry, rank):
        self.registry = registry
        self.gen = torch.Generator().manual_seed(rank)

    def linear_phase(self):
        slab = torch.randn(32, 160, generator=self.gen)
        for _ in range(3):
            power = self.registry["density"].transform(slab)
            slab = slab * (1 + 1e-3 * torch.tanh(power.mean()))
        self.registry.release_idle(keep=("potential",))
        return slab

    def nonlinear_phase(self, slab):
        totals = []
        for name in ("potential", "velocity", "displacement", "lensing", "density"):
            totals.append(float(self.registry[name].transform(slab).sum()))
        self.registry.release_idle(keep=("potential",))
        return totals


def solve():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    solver = Solver(PlanRegistry(dist.get_world_size()), rank)
    slab = solver.linear_phase()
    totals = solver.nonlinear_phase(slab)
    log.info("power %s", ["%.3g" % t for t in totals])
    dist.barrier()
    dist.destroy_process_group()


class LocalCluster:
    """Starts the workers on this machine, each with a seed of its own for everything random."""

    def __init__(self, workers, seed):
        self.workers, self.seed = workers, seed
        self.run_dir = tempfile.mkdtemp(prefix="spectral-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))

    def environment(self, rank, port):
        return dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.workers),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PYTHONHASHSEED=str(self.seed + rank))

    def run(self):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        procs = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], cwd=self.run_dir,
                                  env=dict(self.environment(rank, store.port), TORCHELASTIC_USE_AGENT_STORE="True"))
                 for rank in range(self.workers)]
        return max(p.wait() for p in procs)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        solve()
    else:
        sys.exit(LocalCluster(WORKERS, seed=11).run())
