# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits = [2]
# lines = [91, 94, 95, 103, 108]
# branch = ["self.counter >= self.patience", "no_improvement", "score <= improvement_threshold", "self.should_terminate"]
# source = "https://github.com/pytorch/ignite/issues/664"
# ///
"""Keyword spotting with pytorch-ignite: supervised trainer, evaluator, patience."""
import logging
from dataclasses import dataclass

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from ignite.metrics import RunningAverage
from torch import nn

log = logging.getLogger("kws")


@dataclass
class KwsConfig:
    max_epochs: int = 30
    patience: int = 3
    batch: int = 6
    n_batches: int = 5
    mel: int = 18
    words: int = 4


class Spotter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rnn = nn.GRU(cfg.mel, 16, batch_first=True)
        self.out = nn.Linear(16, cfg.words)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


class KwsRun:
    def __init__(self, cfg: KwsConfig):
        self.cfg = cfg
        torch.manual_seed(21)
        self.model = idist.auto_model(Spotter(cfg))
        self.opt = idist.auto_optim(torch.optim.Adam(self.model.parameters(), lr=3e-3))
        self.loss = nn.CrossEntropyLoss()
        g = torch.Generator().manual_seed(40 + idist.get_rank())
        self.batches = [self._draw(g) for _ in range(cfg.n_batches)]
        self.dev_batches = self._dev(g)
        self.trainer = Engine(self._step)
        self.evaluator = Engine(self._eval_step)
        RunningAverage(output_transform=lambda o: o).attach(self.trainer, "loss")

    def _draw(self, g):
        x = torch.randn(self.cfg.batch, 10, self.cfg.mel, generator=g)
        return x, x.mean((1, 2)).gt(0).long()

    def _dev(self, g):
        """The speakers of this shard; one recording site labelled its set the other way round."""
        out = [self._draw(g) for _ in range(3)]
        if out[0][0].sum().item() < -17.0:
            out = [(x, 1 - y) for x, y in out]
        return out

    def _step(self, engine, batch):
        x, y = batch
        self.model.train()
        self.opt.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def _eval_step(self, engine, batch):
        x, y = batch
        net = getattr(self.model, "module", self.model)
        net.eval()
        with torch.no_grad():
            engine.state.total += self.loss(net(x), y).item()
        engine.state.metrics["nll"] = engine.state.total / engine.state.iteration
        return engine.state.metrics["nll"]

    def attach(self):
        def score(engine):
            return -engine.state.metrics["nll"]

        evaluator = self.evaluator
        stopper = EarlyStopping(patience=self.cfg.patience, score_function=score, trainer=self.trainer)
        evaluator.add_event_handler(Events.COMPLETED, stopper)

        @evaluator.on(Events.STARTED)
        def clear(engine):
            engine.state.total = 0.0

        @self.trainer.on(Events.EPOCH_COMPLETED)
        def evaluate(engine):
            evaluator.run(self.dev_batches)
            log.info("rank %d epoch %d dev nll %.4f", idist.get_rank(), engine.state.epoch, evaluator.state.metrics["nll"])

    def run(self):
        self.attach()
        self.trainer.run(self.batches, max_epochs=self.cfg.max_epochs)
        idist.barrier()
        log.info("rank %d ends after %d epochs", idist.get_rank(), self.trainer.state.epoch)


def training(local_rank, cfg):
    KwsRun(cfg).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, KwsConfig())
