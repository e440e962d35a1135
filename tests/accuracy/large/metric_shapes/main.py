"""A metric of one rank is summed in double precision, and the exchange of the metrics has one more round there.

A small tagger of short texts is trained with DDP. Batches are cut by a budget of tokens, so a rank whose texts are
short sees more examples than the others in the same number of steps. From some number of examples on, the loss is
summed in double precision, for floats would no longer count singles. The states of the metrics are packed by type and
reduced with one all_reduce a type. In the fourth epoch rank 2 has passed the limit and has a type of its own; the
others are in the all_gather behind the loop.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# file = "sync.py"
# lines = [28]
# code = ["dist.all_reduce(flat)"]
# branch = ["torch.float64 if seen > settings.double_after else torch.float32"]
# source = "constructed"
# ///

from __future__ import annotations

import logging
import sys

import torch

from config.load import load_settings
from config.schema import Settings
from data.batches import BatchStream
from data.cache import TokenCache
from data.corpus import build_shard, build_vocabulary
from distributed.setup import Ranks, joined
from model.tagger import build_model
from trainer.callbacks import CallbackList, EarlyStopping, ProgressLog, RareTagWatch
from trainer.checkpoint import CheckpointFolder
from trainer.loop import Trainer
from trainer.optimizer import build_optimizer

LOG = logging.getLogger("tagger")


def configure_logging(settings: Settings, ranks: Ranks) -> None:
    """The first rank speaks; the others speak up when something is wrong."""
    level = logging.INFO if ranks.is_first else logging.WARNING
    if settings.run.verbose:
        level = logging.DEBUG
    logging.basicConfig(level=level, format=f"[{ranks.rank}] %(levelname).1s %(name)s: %(message)s", stream=sys.stderr)


def describe(settings: Settings, parameters: int) -> None:
    LOG.info("%d parameters, %d epochs of %d steps", parameters, settings.run.epochs, settings.run.steps)
    for name, value in settings.flat():
        LOG.debug("  %s = %s", name, value)


def run(settings: Settings, ranks: Ranks) -> int:
    configure_logging(settings, ranks)
    torch.manual_seed(settings.run.seed)
    vocabulary = build_vocabulary(settings.data)
    cache = TokenCache(settings.data.cache_entries)
    train = build_shard(settings.data, ranks, vocabulary, split="train", cache=cache)
    valid = build_shard(settings.data, ranks, vocabulary, split="valid", cache=cache)
    model = build_model(settings.model, len(vocabulary), settings.data.tags)
    describe(settings, sum(parameter.numel() for parameter in model.parameters()))
    optimizer, schedule = build_optimizer(model, settings.optimizer, settings.run)
    folder = CheckpointFolder(settings.run.folder, ranks, keep=settings.run.keep_checkpoints)
    callbacks = CallbackList([ProgressLog(settings.run.log_every), RareTagWatch(settings.data.tags)])
    if settings.run.patience:
        callbacks.add(EarlyStopping(settings.run.patience, settings.run.min_delta))
    trainer = Trainer(
        settings=settings,
        ranks=ranks,
        model=model,
        optimizer=optimizer,
        schedule=schedule,
        stream=BatchStream(train, settings.data, ranks),
        valid=valid,
        callbacks=callbacks,
        folder=folder,
    )
    history = trainer.fit()
    if ranks.is_first:
        best = max(history, key=lambda report: report["f1"], default=None)
        LOG.info("best epoch: %s", "none" if best is None else f"{best['epoch']:.0f} with f1 {best['f1']:.3f}")
    trainer.close()
    return 0 if history or settings.run.epochs == 0 else 1


def main(arguments: list[str]) -> int:
    settings = load_settings(arguments)
    with joined(settings.run) as ranks:
        return run(settings, ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
