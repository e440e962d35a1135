"""A guard against losses that are not finite vetoes an update on one rank.

Four ranks train a forecaster on measurements of stations; each rank has stations of its own. A sensor of rank 2
was stuck for some hours, its windows scale to 0/0, and the guard lets rank 2 alone leave out the update, and with it
the all_reduce of its gradients. The next gradients pair up one step late, until the report of the ranks' steps.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [2]
# lines = [26]
# file = "exchange.py"
# code = ["dist.all_gather(found, own)"]
# branch = ["not math.isfinite(loss)", "self.callbacks.vetoes(state)"]
# source = "constructed"
# ///

import logging
import sys

import torch

from callbacks.base import CallbackList
from callbacks.checkpoint import Checkpointer
from callbacks.guard import LossGuard
from callbacks.progress import ProgressWriter
from callbacks.stopping import EarlyStopping
from callbacks.timing import StepClock
from engine.trainer import Trainer
from evaluation.validate import Validator
from network.forecaster import Forecaster
from parallel.world import World
from settings.parse import load
from stations.batches import BatchPlan
from stations.catalog import Catalog

log = logging.getLogger("forecast")


def set_up_logging(rank, verbose):
    level = logging.DEBUG if verbose else (logging.INFO if rank == 0 else logging.WARNING)
    logging.basicConfig(level=level, format=f"%(asctime)s r{rank} %(name)s: %(message)s", stream=sys.stderr, force=True)


def make_callbacks(settings, world):
    callbacks = CallbackList()
    callbacks.add(LossGuard(settings.guard, world))
    callbacks.add(StepClock(warm_up=2))
    if settings.stopping.enabled:
        callbacks.add(EarlyStopping(settings.stopping))
    if world.is_main:
        callbacks.add(ProgressWriter(settings.report))
        if settings.checkpoint.enabled:
            callbacks.add(Checkpointer(settings.checkpoint))
    return callbacks


def main():
    torch.set_num_threads(1)
    settings = load(sys.argv[1:])
    with World.join() as world:
        set_up_logging(world.rank, settings.verbose)
        torch.manual_seed(settings.seed)
        catalog = Catalog.synthetic(settings.data)
        own = catalog.share(world.rank, world.size)
        log.info("%d stations in all, %d here", len(catalog), len(own))
        plan = BatchPlan(own, settings.data, seed=settings.seed + world.rank)
        model = Forecaster(settings.model, channels=catalog.channels)
        validator = Validator(own, settings.data, world)
        trainer = Trainer(model, plan, validator, make_callbacks(settings, world), settings, world)
        history = trainer.fit()
        if world.is_main:
            best = min(history, key=lambda row: row.error)
            log.info("best error %.4f in epoch %d of %d", best.error, best.epoch, len(history))


if __name__ == "__main__":
    main()
