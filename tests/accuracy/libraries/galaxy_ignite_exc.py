# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD103", "HD102"]
# culprits = [2]
# lines = [52, 53, 75, 86, 87, 89, 116, 117]
# branch = ["EXCEPTION_RAISED", "torch.isfinite(image).all()"]
# source = "https://github.com/lincc-frameworks/hyrax/issues/1048"
# ///
"""Ignite job that trains an autoencoder on sky survey cutouts and scores the held-out cutouts at the end."""
import logging
import os
import pathlib
import tempfile
from datetime import timedelta

import ignite.distributed as idist
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from ignite.engine import Engine, Events
from ignite.metrics import Loss
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("survey")
SIDE = 12


def export_cutouts(folder, count):
    """Writes cutouts the way the archive delivers them: raw float32, masked pixels of saturated stars are NaN."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(15)
    for i in range(count):
        yy, xx = np.mgrid[:SIDE, :SIDE]
        blob = np.exp(-((yy - rng.uniform(3, 8)) ** 2 + (xx - rng.uniform(3, 8)) ** 2) / rng.uniform(3, 9))
        image = (blob * rng.uniform(0.5, 40.0) + rng.normal(0, 0.02, (SIDE, SIDE))).astype(np.float32)
        image[image > 39.0] = np.nan
        image.tofile(folder / f"{i:05d}.f32")


class Cutouts(Dataset):
    def __init__(self, folder, lo, hi):
        self.files = sorted(folder.glob("*.f32"))[lo:hi]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = torch.from_numpy(np.fromfile(self.files[i], np.float32)).view(1, SIDE, SIDE)
        if not torch.isfinite(image).all():
            raise ValueError(f"cutout {self.files[i].name} has masked pixels")
        return image / 40.0


class AutoEncoder(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.down = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 48), nn.ReLU(), nn.Linear(48, code))
        self.up = nn.Sequential(nn.Linear(code, 48), nn.ReLU(), nn.Linear(48, SIDE * SIDE), nn.Unflatten(1, (1, SIDE, SIDE)))

    def forward(self, x):
        return self.up(self.down(x))


def loader_for(data, batch, shuffle):
    return DataLoader(data, batch, sampler=DistributedSampler(data, shuffle=shuffle, seed=1))


def create_trainer(model, optimizer):
    def step(engine, batch):
        model.train()
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    trainer = Engine(step)

    @trainer.on(Events.ITERATION_COMPLETED(every=10))
    def report(engine):
        log.info("epoch %d iteration %d loss %.5f", engine.state.epoch, engine.state.iteration, engine.state.output)

    @trainer.on(Events.EXCEPTION_RAISED)
    def on_exception(engine, exception):
        log.error("training ends early: %s", exception)
        trainer.terminate()

    return trainer


def create_evaluator(model):
    @torch.no_grad()
    def step(engine, batch):
        model.eval()
        return model(batch), batch

    evaluator = Engine(step)
    Loss(nn.functional.mse_loss).attach(evaluator, "mse")
    return evaluator


def training(local_rank, folder):
    logging.basicConfig(level=logging.INFO, format=f"[{idist.get_rank()}] %(message)s")
    if idist.get_rank() == 0:
        export_cutouts(folder, 330)
    idist.barrier()
    finish_line = dist.new_group(timeout=timedelta(hours=2))
    torch.manual_seed(0)
    model = idist.auto_model(AutoEncoder())
    optimizer = idist.auto_optim(torch.optim.Adam(model.parameters(), lr=2e-3))
    trainer = create_trainer(model, optimizer)
    evaluator = create_evaluator(model.module)
    trainer.run(loader_for(Cutouts(folder, 0, 270), 5, True), max_epochs=4)
    dist.barrier(finish_line)
    state = evaluator.run(loader_for(Cutouts(folder, 270, 276), 2, False))
    log.info("held-out mse %.6f", state.metrics["mse"])


def main():
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"cutouts-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, folder)


if __name__ == "__main__":
    main()
