# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD108"]
# culprits_any = [[0], [0, 1, 2]]
# lines = [62, 75, 99]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Asynchronous sharded checkpoints: a thread writes the shard, then gathers the shards' names for the index, on the trainer's group.
Rank 0 writes the dictionaries first and its thread comes later: there, the trainer's all_reduce goes before the gathering, elsewhere after it."""
import hashlib
import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("async-ckpt")


@dataclass
class Config:
    out: Path = Path("checkpoints")
    hidden: int = 24
    steps: int = 40
    checkpoint_every: int = 6
    data_time: float = 0.5


class AsyncCheckpointer:
    def __init__(self, cfg: Config):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.thread = None
        cfg.out.mkdir(exist_ok=True)

    def _write(self, step, state):
        path = self.cfg.out / f"step{step}-{self.rank}.pt"
        torch.save(state, path)
        return path

    def _write_tokenizer(self, step):
        """The dictionary goes with each checkpoint, written once."""
        digest = hashlib.sha256()
        with open(self.cfg.out / f"tokenizer-{step}.txt", "w") as f:
            for piece in range(30):
                line = f"piece{piece} {piece * step}\n"
                digest.update(line.encode())
                f.write(line)
                time.sleep(0.03)
        return digest.hexdigest()

    def _save(self, step, state):
        if self.rank == 0:
            self._write_tokenizer(step)
        path = self._write(step, state)
        names = [None] * self.world
        dist.all_gather_object(names, path.name)
        if self.rank == 0:
            (self.cfg.out / f"index-{step}.txt").write_text("\n".join(names))

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def save(self, step, model):
        self.wait()
        state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.thread = threading.Thread(target=self._save, args=(step, state), name=f"ckpt-{step}", daemon=True)
        self.thread.start()


class Batches:
    def __init__(self, cfg: Config, rank: int):
        self.cfg, self.rank = cfg, rank

    def __iter__(self):
        for step in range(1, self.cfg.steps + 1):
            time.sleep(self.cfg.data_time)
            g = torch.Generator().manual_seed(step * 10 + self.rank)
            yield step, torch.randn(8, self.cfg.hidden, generator=g)


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.hidden))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.checkpointer = AsyncCheckpointer(cfg)

    def reduce_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

    def fit(self):
        for step, x in Batches(self.cfg, dist.get_rank()):
            loss = (self.model(x) - x.cumsum(1)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.reduce_gradients()
            self.opt.step()
            if step % self.cfg.checkpoint_every == 0:
                self.checkpointer.save(step, self.model)
        self.checkpointer.wait()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Trainer(Config()).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
