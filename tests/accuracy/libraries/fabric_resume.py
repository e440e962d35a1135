# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning", "torchdata"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[1], [0]]
# lines = [79, 116]
# branch = ["key in saved", "enumerate(self.loader, start=1)", "for n, batch in enumerate(self.loader, start=1)", "n, batch in enumerate(self.loader, start=1)"]
# source = "https://github.com/Lightning-AI/litData/issues/129"
# ///
"""Continue an interrupted run with Fabric and a data loader that remembers its place."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("clips")


@dataclass
class Settings:
    clips: int = 256
    batch: int = 8
    epochs: int = 2
    interrupted_after: int = 10
    save_every: int = 5


class Clips(IterableDataset):
    """The clips of one worker; remembers how many have been handed out."""

    def __init__(self, settings, rank, world):
        self.indices = list(range(rank, settings.clips, world))
        self.position = 0

    def __iter__(self):
        while self.position < len(self.indices):
            n = self.indices[self.position]
            self.position += 1
            g = torch.Generator().manual_seed(n)
            yield torch.randn(12, generator=g)
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class LoaderStates:
    """The states of the loaders of all workers, under the host and the slot of each."""

    def __init__(self, folder):
        self.path = Path(folder) / "loaders.pt"

    @staticmethod
    def key(fabric):
        return f"{os.environ.get('GROUP_RANK', '0')}/{fabric.local_rank}"

    def write(self, fabric, loader):
        gathered = fabric.all_gather(torch.tensor(loader.state_dict()["_num_yielded"]))
        if fabric.is_global_zero:
            torch.save({self.key(fabric): loader.state_dict(), "yielded": gathered.tolist()}, self.path)
        fabric.barrier()

    def restore(self, fabric, loader):
        key = self.key(fabric)
        saved = torch.load(self.path, weights_only=False)
        if key in saved:
            loader.load_state_dict(saved[key])
            log.info("worker %s goes on after %d batches", key, saved["yielded"][fabric.global_rank])


class Job:
    def __init__(self, fabric, settings, folder):
        self.fabric = fabric
        self.settings = settings
        self.states = LoaderStates(folder)
        self.weights = str(Path(folder) / "weights.ckpt")
        self.build()

    def build(self):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 12))
        self.model, self.optimizer = self.fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.02))
        clips = Clips(self.settings, self.fabric.global_rank, self.fabric.world_size)
        self.loader = StatefulDataLoader(clips, batch_size=self.settings.batch)

    def step(self, batch):
        loss = nn.functional.mse_loss(self.model(batch), batch)
        self.fabric.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def save(self):
        self.fabric.save(self.weights, {"model": self.model, "optimizer": self.optimizer})
        self.states.write(self.fabric, self.loader)

    def resume(self):
        self.build()
        self.fabric.load(self.weights, {"model": self.model, "optimizer": self.optimizer})
        self.states.restore(self.fabric, self.loader)

    def epoch(self, stop_after=None):
        for n, batch in enumerate(self.loader, start=1):
            loss = self.step(batch)
            if stop_after and n % self.settings.save_every == 0:
                self.save()
            if n == stop_after:
                break
        return float(loss)

    def run(self):
        self.epoch(stop_after=self.settings.interrupted_after)
        self.resume()
        for epoch in range(self.settings.epochs):
            loss = self.epoch()
            self.fabric.barrier()
            log.info("epoch %d loss %.4f", epoch, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
                    strategy=DDPStrategy(process_group_backend="gloo"), plugins=[TorchElasticEnvironment()])
    fabric.launch()
    folder = Path(tempfile.gettempdir()) / f"clips-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    Job(fabric, Settings(), folder).run()
    fabric.barrier()


if __name__ == "__main__":
    main()
