# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits = [2]
# culprits_any = [[0, 1]]
# lines = [60, 68, 73, 74, 77, 78, 113]
# branch = ["self.guard.notice.is_set()", "range(self.step, self.cfg.total_steps)"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/3007"
# ///
"""Two small hosts in one script: a host agent starts its ranks and forwards the cloud's maintenance notice to them; ranks checkpoint when told to leave."""
import logging
import multiprocessing as mp
import os
import signal
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


@dataclass
class JobConfig:
    hosts: dict = field(default_factory=lambda: {"host-a": [0, 1], "host-b": [2]})
    maintenance: dict = field(default_factory=lambda: {"host-b": 30})
    total_steps: int = 4000
    save_every: int = 1000
    lr: float = 0.01
    folder: str = ""
    port: int = 0


class PreemptionGuard:
    def __init__(self):
        self.notice = threading.Event()
        signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, signum, frame):
        self.notice.set()


class Trainer:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.step = cfg, rank, 0
        self.guard = PreemptionGuard()
        torch.manual_seed(2)
        self.model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 4))
        self.beat = Path(cfg.folder) / f"beat-{rank}"

    def save(self, reason):
        logging.info("checkpoint at step %d (%s)", self.step, reason)
        torch.save(self.model.state_dict(), Path(self.cfg.folder) / f"step{self.step}-rank{self.rank}.pt")
        dist.barrier()

    def train_step(self):
        x = torch.randn(16, 32)
        loss = torch.nn.functional.cross_entropy(self.model(x), x[:, :4].argmax(1))
        self.model.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.data.sub_(p.grad, alpha=self.cfg.lr)
        time.sleep(0.01)

    def fit(self):
        for self.step in range(self.step, self.cfg.total_steps):
            self.train_step()
            if self.step % 10 == 0:
                self.beat.write_text(str(self.step))
            if self.guard.notice.is_set():
                self.save("preempted")
                break
            if self.step and self.step % self.cfg.save_every == 0:
                self.save("regular")
        dist.destroy_process_group()


def run_rank(rank, cfg):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(sum(map(len, cfg.hosts.values()))),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cfg.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Trainer(cfg, rank).fit()


class HostAgent:
    def __init__(self, name, cfg):
        self.name, self.cfg = name, cfg
        ctx = mp.get_context("fork")
        self.procs = {r: ctx.Process(target=run_rank, args=(r, cfg), name=f"{name}:{r}") for r in cfg.hosts[name]}

    def start(self):
        for p in self.procs.values():
            p.start()
        threading.Thread(target=self._watch_notices, daemon=True, name=f"notices-{self.name}").start()

    def _watch_notices(self):
        due = self.cfg.maintenance.get(self.name)
        while due is not None:
            time.sleep(0.2)
            beats = [Path(self.cfg.folder) / f"beat-{r}" for r in self.procs]
            if all(b.exists() and int(b.read_text() or 0) >= due for b in beats):
                logging.warning("%s: maintenance notice, telling ranks %s", self.name, list(self.procs))
                for p in self.procs.values():
                    os.kill(p.pid, signal.SIGUSR1)
                return

    def wait(self):
        for p in self.procs.values():
            p.join()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s agent %(message)s")
    cfg = JobConfig(folder=tempfile.mkdtemp(prefix="preempt_", dir=os.environ.get("TMPDIR", tempfile.gettempdir())))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        cfg.port = s.getsockname()[1]
    agents = [HostAgent(name, cfg) for name in cfg.hosts]
    for a in agents:
        a.start()
    for a in agents:
        a.wait()


if __name__ == "__main__":
    main()
