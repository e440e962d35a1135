# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits = [2]
# lines = [48, 98, 100, 105, 106, 111, 117, 120]
# branch = ["self.notice.pending", "self.received", "state, target in self._until_notice(loader)", "self.received is not None", "batch in loader"]
# source = "https://github.com/ai2cm/ace/pull/1407"
# ///
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("atmos")

STEPD = """
import os, signal, sys, time
task = sys.argv[1]
time.sleep(3.0)
os.kill(int(open(task).read()), signal.SIGUSR1)
"""


class PreemptionNotice:
    """Remembers that the batch system asked for the node."""

    def __init__(self, signum=signal.SIGUSR1):
        self.received = None
        signal.signal(signum, self._on_signal)

    def _on_signal(self, signum, frame):
        self.received = signum

    @property
    def pending(self):
        return self.received is not None


class StepDaemon:
    """Stands for the batch system's daemon of a node: it signals the node's first task."""

    def __init__(self, root, tasks_per_node=2):
        self.root, self.per_node = Path(root), tasks_per_node

    def enlist(self, rank):
        task = self.root / f"task{rank}.pid"
        task.write_text(str(os.getpid()))
        reclaimed = os.environ.get("RECLAIM_NODE", "1")
        if rank % self.per_node == 0 and str(rank // self.per_node) == reclaimed:
            return subprocess.Popen([sys.executable, "-c", STEPD, str(task)])
        return None


class Windows:
    """An endless walk through the reanalysis, one window of days a step."""

    def __init__(self, rank, channels=6):
        self.gen = torch.Generator().manual_seed(rank)
        self.channels = channels

    def __iter__(self):
        while True:
            state = torch.randn(8, self.channels, generator=self.gen)
            yield state, state.roll(1, dims=1) * 0.9


class Emulator(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(channels, 24), nn.GELU(), nn.Linear(24, channels))

    def forward(self, state):
        return state + self.net(state)


class Run:
    def __init__(self, root, rank, notice):
        torch.manual_seed(6)
        self.root, self.rank, self.notice = Path(root), rank, notice
        self.model = DDP(Emulator())
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=1e-3)
        self.step = 0

    def _until_notice(self, loader):
        for batch in loader:
            if self.notice.pending:
                log.info("asked to stop at step %d", self.step)
                return
            yield batch

    def _advance(self, state, target):
        loss = nn.functional.mse_loss(self.model(state), target)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        self.step += 1

    def save(self):
        self.opt.consolidate_state_dict(to=0)
        if self.rank == 0:
            torch.save({"model": self.model.module.state_dict(), "step": self.step}, self.root / "restart.pt")
        dist.barrier()

    def fit(self, loader, pause):
        for state, target in self._until_notice(loader):
            self._advance(state, target)
            pause.wait(0.02)
        self.save()


def main():
    import threading

    notice = PreemptionNotice()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = Path(tempfile.gettempdir()) / f"atmos_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    run = Run(root, rank, notice)
    daemon = StepDaemon(root).enlist(rank)
    run.fit(Windows(rank), threading.Event())
    if daemon is not None:
        daemon.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
