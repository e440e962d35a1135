# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD103", "HD109", "HD101"]
# culprits = [2]
# lines = [51, 50, 95, 53, 78]
# branch = ["self._seen", "keep.any()", "every"]
# source = "https://github.com/pytorch/ignite/issues/1242"
# ///
"""Fine-tunes a classifier with pytorch-ignite and reports a calibration error over the reviewed part of the validation data after each epoch."""
import logging

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.exceptions import NotComputableError
from ignite.metrics import Metric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("calib")


class ExpectedCalibrationError(Metric):
    """Binned gap between confidence and accuracy, over all ranks."""

    def __init__(self, bins=10, output_transform=lambda x: x):
        self.bins = bins
        super().__init__(output_transform=output_transform)

    def reset(self):
        self._hits = torch.zeros(self.bins)
        self._conf = torch.zeros(self.bins)
        self._size = torch.zeros(self.bins)
        self._seen = 0

    def update(self, output):
        probs, labels, keep = output
        if not keep.any():
            return
        conf, guess = probs[keep].max(dim=1)
        slot = (conf * self.bins).long().clamp(max=self.bins - 1)
        self._hits.index_add_(0, slot, (guess == labels[keep]).float())
        self._conf.index_add_(0, slot, conf)
        self._size.index_add_(0, slot, torch.ones_like(conf))
        self._seen += int(keep.sum())

    def compute(self):
        if self._seen == 0:
            raise NotComputableError("calibration error needs at least one reviewed sample")
        counts = torch.stack([self._hits, self._conf, self._size])
        everything = idist.all_gather(counts).view(-1, 3, self.bins).sum(0)
        hits, conf, size = everything
        return ((hits - conf).abs() / size.clamp(min=1)).sum().item()


def synth(n, seed, reviewed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 16, generator=gen)
    y = (x[:, :3].sum(1) > 0).long()
    return TensorDataset(x, y, reviewed(torch.arange(n)))


def review_mask(site):
    """Which samples had a second reader: the pilot site has none yet."""
    schedule = {"north": 3, "south": 5}
    every = schedule.get(site)
    return (lambda idx: idx % every == 0) if every else (lambda idx: torch.zeros_like(idx, dtype=torch.bool))


def build_trainer(model, opt):
    def step(engine, batch):
        model.train()
        x, y, _ = batch
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()
    return Engine(step)


def build_evaluator(model):
    @torch.no_grad()
    def step(engine, batch):
        model.eval()
        x, y, reviewed = batch
        return getattr(model, "module", model)(x).softmax(1), y, reviewed
    evaluator = Engine(step)
    ExpectedCalibrationError().attach(evaluator, "ece")

    @evaluator.on(Events.EXCEPTION_RAISED)
    def report(engine, err):
        log.warning("%s ended early: %s", "validation", err)
    return evaluator


def training(local_rank, config):
    rank = idist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(name)s: %(message)s")
    torch.manual_seed(1)
    model = idist.auto_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    site = config["sites"][rank]
    train = DataLoader(synth(320, rank, lambda i: i >= 0), batch_size=32)
    valid = DataLoader(synth(96, 100 + rank, review_mask(site)), batch_size=32)
    trainer, evaluator = build_trainer(model, opt), build_evaluator(model)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        state = evaluator.run(valid)
        log.info("epoch %d loss %.3f ece %s", engine.state.epoch, engine.state.output, state.metrics.get("ece"))

    trainer.run(train, max_epochs=config["epochs"])


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {"epochs": 4, "sites": ["north", "south", "pilot"]})
