# /// hangdoc
# launch = "python"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [1]
# lines = [66, 69, 98, 104, 105, 110]
# branch = ["self.path.exists()", "self.path.stat().st_size == 0"]
# source = "https://github.com/pytorch/torchtitan/issues/409"
# ///
"""Language model run that resumes in the middle of an epoch: every process restores its own torchdata StatefulDataLoader
from the folder that the preempted job left behind."""
import logging
import socket
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("resume")


@dataclass
class RunConfig:
    vocab: int = 50
    width: int = 16
    length: int = 8
    sequences: int = 120
    batch_size: int = 4
    preempted_at: int = 11
    epochs: int = 2
    processes: int = 4


class Sequences(Dataset):
    def __init__(self, cfg, rank):
        gen = torch.Generator().manual_seed(rank)
        self.ids = torch.randint(0, cfg.vocab, (cfg.sequences, cfg.length + 1), generator=gen)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return self.ids[index, :-1], self.ids[index, 1:]


class LoaderState:
    """State of one process's loader; missing or half-written files mean a fresh start."""

    def __init__(self, folder, rank):
        self.path = Path(folder) / f"loader.rank{rank}.pt"

    def save(self, loader, step):
        torch.save({"loader": loader.state_dict(), "step": step}, self.path)

    def restore(self, loader):
        if not self.path.exists() or self.path.stat().st_size == 0:
            return 0
        state = torch.load(self.path, weights_only=False)
        loader.load_state_dict(state["loader"])
        return state["step"]


def leave_preempted_run(folder, cfg, rank):
    """What the earlier job left: it was killed while the second file was being written."""
    loader = StatefulDataLoader(Sequences(cfg, rank), batch_size=cfg.batch_size, num_workers=0)
    for step, _ in enumerate(loader, 1):
        if step == cfg.preempted_at:
            break
    LoaderState(folder, rank).save(loader, step)
    if rank == 1:
        with open(LoaderState(folder, rank).path, "r+b") as f:
            f.truncate(0)


class LanguageRun:
    def __init__(self, cfg, folder):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Embedding(cfg.vocab, cfg.width), nn.Linear(cfg.width, cfg.vocab)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.loader = StatefulDataLoader(Sequences(cfg, self.rank), batch_size=cfg.batch_size, num_workers=0)
        self.state = LoaderState(folder, self.rank)
        self.step = 0

    def batch(self, ids, target):
        loss = nn.functional.cross_entropy(self.model(ids).flatten(0, 1), target.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def epoch(self, number):
        total, count = torch.zeros(()), 0
        for ids, target in self.loader:
            total += self.batch(ids, target)
            count += 1
            self.step += 1
        mean = total / max(count, 1)
        seen = [None] * dist.get_world_size()
        dist.all_gather_object(seen, count)
        if self.rank == 0:
            log.info("epoch %d: %s batches, loss %.3f", number, seen, mean)

    def fit(self):
        self.step = self.state.restore(self.loader)
        for number in range(self.cfg.epochs):
            self.epoch(number)
            self.state.save(self.loader, self.step)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, cfg, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=cfg.processes,
                            timeout=timedelta(minutes=30))
    folder = [tempfile.mkdtemp(prefix="lmrun-")]
    dist.broadcast_object_list(folder, src=0)
    leave_preempted_run(folder[0], cfg, dist.get_rank())
    dist.barrier()
    LanguageRun(cfg, folder[0]).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    config = RunConfig()
    mp.spawn(worker, args=(config, free_port()), nprocs=config.processes)
