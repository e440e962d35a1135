# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [0]
# culprits_any = [[0], [1]]
# lines = [73, 78, 83, 84, 90, 92]
# branch = ["for x in self.loader", "self.loader", "self.step % self.cfg.snapshot_every == self.phase"]
# source = "https://github.com/meta-pytorch/data/issues/1437"
# ///
"""Mid-epoch resume with torchdata's StatefulDataLoader; every rank snapshots its own loader."""
import logging
import os
import pickle
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("resume")


@dataclass
class Config:
    samples: int = 40
    batch: int = 4
    epochs: int = 4
    snapshot_every: int = 5
    dim: int = 8


class Rows(Dataset):
    def __init__(self, n: int, dim: int, seed: int):
        self.data = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.data[i]


class Snapshots:
    def __init__(self, rank: int):
        tag = os.environ["MASTER_PORT"]
        self.path = os.path.join(tempfile.gettempdir(), f"loader-{tag}-{rank}.pkl")

    def put(self, state: dict) -> None:
        with open(self.path + ".part", "wb") as fh:
            pickle.dump(state, fh)
        os.replace(self.path + ".part", self.path)

    def get(self) -> dict:
        with open(self.path, "rb") as fh:
            return pickle.load(fh)


class Loop:
    def __init__(self, cfg: Config, model: DDP, snapshots: Snapshots):
        self.cfg, self.model, self.snapshots = cfg, model, snapshots
        self.loader = StatefulDataLoader(Rows(cfg.samples, cfg.dim, dist.get_rank()), batch_size=cfg.batch)
        self.opt = torch.optim.SGD(model.parameters(), lr=1e-2)
        self.epoch = self.step = 0
        self.phase = (dist.get_rank() * 2) % cfg.snapshot_every

    def maybe_snapshot(self) -> None:
        if self.step % self.cfg.snapshot_every == self.phase:
            self.snapshots.put({"loader": self.loader.state_dict(), "epoch": self.epoch, "step": self.step})

    def train_step(self, x: torch.Tensor) -> None:
        self.opt.zero_grad()
        self.model(x).square().mean().backward()
        self.opt.step()
        self.step += 1

    def one_epoch(self) -> None:
        for x in self.loader:
            self.train_step(x)
            self.maybe_snapshot()
        self.epoch += 1

    def fit(self, until: int) -> None:
        while self.epoch < until:
            self.one_epoch()
            steps = [None] * dist.get_world_size()
            dist.all_gather_object(steps, self.step)
            log.info("rank %d epoch %d steps %s", dist.get_rank(), self.epoch, steps)

    def resume(self) -> None:
        state = self.snapshots.get()
        self.loader.load_state_dict(state["loader"])
        self.epoch, self.step = state["epoch"], state["step"]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    cfg = Config()
    snapshots = Snapshots(dist.get_rank())
    model = DDP(torch.nn.Linear(cfg.dim, 1))
    Loop(cfg, model, snapshots).fit(until=2)
    again = Loop(cfg, model, snapshots)
    again.resume()
    log.info("rank %d resumes epoch %d at step %d", dist.get_rank(), again.epoch, again.step)
    again.fit(until=cfg.epochs)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
