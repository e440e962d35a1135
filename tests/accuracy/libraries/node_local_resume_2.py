# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits_any = [[2, 3], [0, 1]]
# lines = [47, 52, 100, 104, 121, 123]
# branch = ["self.step < min(until, self.cfg.max_steps)", "(folder / \"COMPLETE\").is_file()", "is_file()", "self.is_whole(folder)"]
# source = "https://github.com/facebookresearch/fairseq2/pull/249"
# ///
import logging
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchdata.stateful_dataloader import StatefulDataLoader

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("recipe")


@dataclass
class RecipeConfig:
    scratch: Path
    max_steps: int = 70
    save_every: int = 15
    ranks_per_node: int = 2
    batch: int = 4


class NodeScratch:
    """Checkpoints on the node's own disk."""

    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.folder = cfg.scratch / f"node{rank // cfg.ranks_per_node}"
        self.leader = rank % cfg.ranks_per_node == 0
        self.quota = 6 if self.folder.name == "node0" else 3

    def is_whole(self, folder):
        return (folder / "COMPLETE").is_file()

    def last(self):
        found = {}
        for folder in self.folder.glob("step_*"):
            if self.is_whole(folder):
                found[int(re.fullmatch(r"step_(\d+)", folder.name).group(1))] = folder
        return max(found.items(), default=(0, None))

    def put(self, step, state):
        folder = self.folder / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / "state.pt")
        if len(list(self.folder.glob("step_*"))) <= self.quota:
            (folder / "COMPLETE").touch()


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        x = torch.randn(9, generator=gen)
        return x, x.cumsum(0)


class Recipe:
    def __init__(self, cfg, rank):
        self.cfg, self.store = cfg, NodeScratch(cfg, rank)
        torch.manual_seed(9)
        self.model = DDP(nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 9)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.loader = StatefulDataLoader(Sentences(), batch_size=cfg.batch, num_workers=0)
        self.step = 0

    def restore(self):
        step, folder = self.store.last()
        if folder is not None:
            state = torch.load(folder / "state.pt", weights_only=False)
            self.model.module.load_state_dict(state["model"])
            self.loader.load_state_dict(state["loader"])
            self.step = step
            log.info("resumed at step %d", step)

    def _save(self):
        if self.store.leader:
            state = {"model": self.model.module.state_dict(), "loader": self.loader.state_dict()}
            self.store.put(self.step, state)
        dist.barrier()

    def run(self, until):
        batches = iter(self.loader)
        while self.step < min(until, self.cfg.max_steps):
            x, y = next(batches)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % self.cfg.save_every == 0:
                self._save()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cfg = RecipeConfig(Path(tempfile.gettempdir()) / f"recipe_{os.environ['MASTER_PORT']}")
    first = Recipe(cfg, rank)
    log.info("first allocation: loss %.4f", first.run(until=64))
    dist.barrier()
    second = Recipe(cfg, rank)
    second.restore()
    loss = second.run(until=cfg.max_steps)
    log.info("second allocation: loss %.4f", loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
