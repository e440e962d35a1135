# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "healthy"
# source = "https://github.com/pytorch/ignite/pull/882"
# ///
"""Trains with ignite; after each epoch rank 0 alone computes a slow reference metric while the others wait."""
import logging
import time

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events

log = logging.getLogger("reference")


class Pairs:
    def __init__(self, rank, batches=12):
        self.rank = rank
        self.batches = batches

    def __iter__(self):
        for i in range(self.batches):
            gen = torch.Generator().manual_seed(i * 17 + self.rank)
            x = torch.randn(16, 6, generator=gen)
            yield x, x.sum(dim=1, keepdim=True)

    def __len__(self):
        return self.batches


class Linear:
    def __init__(self):
        self.weight = torch.zeros(6, 1)

    def update(self, engine, batch):
        x, y = batch
        w = self.weight.requires_grad_(True)
        loss = (x @ w - y).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, w)
        grad = idist.all_reduce(grad.detach()) / idist.get_world_size()
        self.weight = (w - 0.05 * grad).detach()
        return loss.item()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


@idist.one_rank_only(rank=0, with_barrier=True)
def reference_metric(model, seconds=9.0):
    end, done, total = time.monotonic() + seconds, 0, 0
    text = "".join(chr(97 + int(abs(v) * 1000) % 26) for v in model.weight.flatten().tolist()) * 30
    while time.monotonic() < end:
        total += edit_distance(text, text[done % 7 :])
        done += 1
        time.sleep(0.05)
    log.info("reference metric over %d pairs: %.2f", done, total / done)


def training(local_rank):
    model = Linear()
    trainer = Engine(model.update)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        reference_metric(model)

    trainer.run(Pairs(idist.get_rank()), max_epochs=2)
    idist.barrier()
    if idist.get_rank() == 0:
        log.info("finished, weight %s", model.weight.flatten().tolist())


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)


if __name__ == "__main__":
    main()
