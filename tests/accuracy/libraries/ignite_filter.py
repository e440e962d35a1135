# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [3]
# lines = [36, 41, 75, 78]
# branch = ["loss > ", "factor", "event_filter", "self._event_filter"]
# source = "https://github.com/pytorch/ignite/pull/2895"
# ///
"""ignite. The model is dumped after a spike of the training loss, by an event filter that looks at the rank's own loss; the dump is
one_rank_only with a barrier, which only the rank with the spike enters."""
import os
import tempfile
from dataclasses import dataclass

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from torch import nn


@dataclass
class Plan:
    features: int = 6
    classes: int = 3
    epochs: int = 3
    per_epoch: int = 20
    factor: float = 4.0


class SpikeFilter:
    def __init__(self, factor):
        self.factor, self.mean = factor, None

    def is_spike(self, loss):
        spike = self.mean is not None and loss > self.factor * self.mean
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        return spike

    def __call__(self, engine, event):
        return self.is_spike(engine.state.output)


class Source:
    def __init__(self, plan, rank):
        self.plan, self.rank, self.index = plan, rank, 0

    def batch(self):
        self.index += 1
        scale = 60.0 if (self.rank == 3 and self.index == 11) else 1.0
        return torch.randn(8, self.plan.features) * scale, torch.randint(self.plan.classes, (8,))


class Training:
    def __init__(self, plan):
        self.plan, self.source = plan, Source(plan, idist.get_rank())
        self.net = nn.parallel.DistributedDataParallel(nn.Linear(plan.features, plan.classes))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001)
        self.trainer = Engine(self.update)
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED(event_filter=SpikeFilter(plan.factor)), self.on_spike)

    def update(self, engine, _):
        x, y = self.source.batch()
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @idist.one_rank_only(rank=0, with_barrier=True)
    def dump(self, iteration):
        torch.save(self.net.module.state_dict(), os.path.join(tempfile.gettempdir(), f"spike-{iteration}.pt"))

    def on_spike(self, engine):
        self.dump(engine.state.iteration)

    def start(self):
        self.trainer.run(range(self.plan.per_epoch), max_epochs=self.plan.epochs)


def main(local_rank, plan):
    Training(plan).start()


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main, Plan())
