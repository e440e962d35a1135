# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits = [0]
# culprits_any = [[1, 2, 3]]
# lines = [65, 66, 84, 90]
# branch = ["saved.exists()", "for ids, labels in loader", "self.rank == 0"]
# source = "https://github.com/bghira/SimpleTuner/pull/2986"
# ///
"""Trains on torchdata's StatefulDataLoader, is interrupted in the middle of an epoch and goes on from the checkpoint."""
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("resume")


class Events(Dataset):
    def __init__(self, rank, size=96):
        g = torch.Generator().manual_seed(rank)
        self.ids = torch.randint(0, 64, (size, 6), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.ids[i, 0] % 4


class Interrupted(Exception):
    """The queue's time slot is over."""


class Session:
    def __init__(self, folder, rank, world, slot):
        self.folder, self.rank, self.world, self.slot = folder, rank, world, slot
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.EmbeddingBag(64, 12), nn.Linear(12, 4))
        self.loader = StatefulDataLoader(Events(rank), batch_size=8, num_workers=0)
        self.epoch, self.steps = 0, 0

    def save(self):
        """Weights are equal everywhere, so one process writes the model; loader positions go beside it."""
        if self.rank == 0:
            torch.save({"model": self.model.state_dict(), "epoch": self.epoch}, self.folder / "model.pt")
            torch.save(self.loader.state_dict(), self.folder / f"loader-{self.rank}.pt")
        dist.barrier()

    def restore(self, loader):
        model_file = self.folder / "model.pt"
        if model_file.exists():
            state = torch.load(model_file)
            self.model.load_state_dict(state["model"])
            self.epoch = state["epoch"]
        saved = self.folder / f"loader-{self.rank}.pt"
        if saved.exists():
            loader.load_state_dict(torch.load(saved, weights_only=False))
            log.info("loader position restored")

    def update(self, ids, labels, lr=0.2):
        loss = nn.functional.cross_entropy(self.model(ids), labels)
        self.model.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        with torch.no_grad():
            for p, g in zip(self.model.parameters(), flat.split([p.numel() for p in self.model.parameters()])):
                p -= lr * g.view_as(p) / self.world
        return loss.item()

    def run(self, epochs):
        self.restore(self.loader)
        loader = self.loader
        while self.epoch < epochs:
            for ids, labels in loader:
                loss = self.update(ids, labels)
                self.steps += 1
                if self.steps == self.slot:
                    self.save()
                    raise Interrupted
            dist.barrier()  # end of the epoch
            log.info("epoch %d done, loss %.4f", self.epoch, loss)
            self.epoch += 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "events"
    folder.mkdir(parents=True, exist_ok=True)
    for number, slot in enumerate([19, 10_000]):
        session = Session(folder, rank, world, slot)
        try:
            session.run(epochs=6)
        except Interrupted:
            log.info("session %d ends after %d steps", number, session.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
