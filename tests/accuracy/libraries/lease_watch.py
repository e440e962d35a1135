# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD112", "HD101"]
# culprits = [2]
# lines = [31, 63, 67, 69, 98]
# source = "https://github.com/PetaVision/OpenPV/pull/294"
# ///
"""Trains on borrowed nodes: a watcher beside each rank announces the end of the node's lease with a signal, upon which the state is saved."""
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("lease")

WATCHER = """
import json, os, signal, sys, time
lease, pid = sys.argv[1], int(sys.argv[2])
while os.getppid() == pid:
    if time.time() > json.load(open(lease))["until"]:
        os.kill(pid, signal.SIGUSR1)
        break
    time.sleep(0.2)
"""


class Lease:
    """What the scheduler granted to the node of this rank."""

    GRANTED = (3600, 3600, 4, 3600)

    def __init__(self, folder: Path, rank: int):
        self.path = folder / f"lease{rank}.json"
        self.path.write_text(json.dumps({"until": time.time() + self.GRANTED[rank % len(self.GRANTED)]}))
        self.watcher = subprocess.Popen([sys.executable, "-S", "-c", WATCHER, str(self.path), str(os.getpid())])

    def end(self):
        self.watcher.terminate()
        self.watcher.wait()


class StateKeeper:
    def __init__(self, folder: Path, rank: int, world: int):
        self.folder, self.rank, self.world = folder, rank, world
        self.group = dist.new_group(backend="gloo")
        self.step, self.state = 0, None

    def track(self, step: int, state: torch.Tensor):
        self.step, self.state = step, state

    def save(self):
        parts = [torch.empty_like(self.state) for _ in range(self.world)]
        dist.all_gather(parts, self.state, group=self.group)
        torch.save({"step": self.step, "parts": parts}, self.folder / f"state{self.rank}.pt")
        log.info("saved the state of step %d", self.step)

    def on_signal(self, number, frame):
        log.warning("%s: the lease is about to end", signal.Signals(number).name)
        self.save()


def train_step(state: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        data = torch.tanh(data @ data.T / data.shape[0])
    gradient = data.mean(dim=0)
    dist.all_reduce(gradient)
    return state - 1e-2 * gradient


def fit(keeper: StateKeeper, steps: int, save_every: int) -> float:
    state = torch.zeros(128)
    for step in range(steps):
        state = train_step(state, torch.randn(128, 128))
        keeper.track(step, state)
        if step % save_every == save_every - 1:
            keeper.save()
    return state.norm().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "lease"
    folder.mkdir(parents=True, exist_ok=True)
    keeper = StateKeeper(folder, rank, world)
    keeper.track(-1, torch.zeros(128))
    signal.signal(signal.SIGUSR1, keeper.on_signal)
    dist.barrier()
    lease = Lease(folder, rank)
    norm = fit(keeper, steps=200_000, save_every=50_000)
    lease.end()
    log.info("finished with norm %.3f", norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
