# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [1]
# lines = [77, 87, 97, 98]
# source = "own"
# ///
"""ignite: TerminateOnNan stops the engine of the one rank whose batch gave a NaN loss. It goes on to the barrier before the final evaluation while
the other two wait for its gradients in the next iteration."""
import logging
from dataclasses import dataclass

import ignite.distributed as idist
import torch
import torch.nn as nn
import torch.nn.functional as F
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler, TerminateOnNan
from ignite.metrics import MeanSquaredError, RunningAverage
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("spectra")


@dataclass
class SpectraConfig:
    bands: int = 10
    hidden: int = 16
    size: int = 120
    batch: int = 4
    epochs: int = 100
    lr: float = 0.01


class Spectra(Dataset):
    """Log-power of spectra; a detector reports small negative powers when it saturates."""

    def __init__(self, cfg, rank):
        gen = torch.Generator().manual_seed(40 + rank)
        self.power = torch.rand(cfg.size, cfg.bands, generator=gen) + 0.05
        self.target = self.power.mean(1)
        if rank == 1:
            self.power[53, 4] = -0.002

    def __len__(self):
        return len(self.power)

    def __getitem__(self, i):
        return self.power[i].log(), self.target[i]


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(cfg.bands, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(8)
        self.model = idist.auto_model(Net(cfg))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.trainer = Engine(self.update)
        self.evaluator = Engine(self.predict)
        MeanSquaredError().attach(self.evaluator, "mse")
        self.attach_handlers()

    def update(self, engine, batch):
        x, y = batch
        loss = F.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def predict(self, engine, batch):
        x, y = batch
        return self.model(x), y

    def attach_handlers(self):
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
        ema = EMAHandler(self.model, momentum=0.01)
        ema.attach(self.trainer, event=Events.ITERATION_COMPLETED)
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED(every=5), self.report)

    def report(self, engine):
        if idist.get_rank() == 0:
            log.info("epoch %d iteration %d loss %.4f", engine.state.epoch, engine.state.iteration, engine.state.output)

    def run(self, train_loader, eval_loader):
        self.trainer.run(train_loader, max_epochs=self.cfg.epochs)
        idist.barrier()
        state = self.evaluator.run(eval_loader)
        return state.metrics["mse"]


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    idist.initialize("gloo")
    cfg, rank = SpectraConfig(), idist.get_rank()
    data = Spectra(cfg, rank)
    mse = Experiment(cfg).run(DataLoader(data, batch_size=cfg.batch), DataLoader(Spectra(cfg, 9), batch_size=cfg.batch))
    log.info("rank %d mse %.4f", rank, mse)
    idist.finalize()


if __name__ == "__main__":
    main()
