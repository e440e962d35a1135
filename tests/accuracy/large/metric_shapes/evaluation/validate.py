"""One validation: every rank its own shard, then the metrics of all together."""

from __future__ import annotations

import logging
import time

import torch
import torch.distributed as dist
from torch import nn

from config.schema import Settings
from data.batches import valid_batches
from data.corpus import Shard
from distributed.setup import Ranks
from evaluation.thresholds import calibrated
from metrics.build import build_metrics
from metrics.report import computed
from metrics.sync import reduce_states

LOG = logging.getLogger("tagger.eval")


@torch.no_grad()
def validate(model: nn.Module, shard: Shard, settings: Settings, ranks: Ranks, examples: int) -> dict[str, float]:
    """``examples``: how many training examples this rank has seen."""
    was_training = model.training
    model.eval()
    metrics = build_metrics(settings.metrics, settings.data.tags, examples)
    started = time.perf_counter()
    scores_of_all, tags_of_all = [], []
    for batch in valid_batches(shard, 8):
        scores = model(batch.tokens)
        losses = nn.functional.cross_entropy(scores, batch.tags, reduction="none")
        if not bool(torch.isfinite(losses).all()):
            LOG.warning("losses that are not finite in a batch of %s", shard.domain)
        for metric in metrics:
            metric.update(scores, losses, batch)
        scores_of_all.append(scores)
        tags_of_all.append(batch.tags)
    temperature = calibrated(torch.cat(scores_of_all), torch.cat(tags_of_all))
    if temperature > 2:
        LOG.debug("%s is overconfident: temperature %.2f", shard.domain, temperature)
    seconds = time.perf_counter() - started
    sent = reduce_states(metrics, settings.metrics.alignment)
    values = computed(metrics)
    values.update(speeds(ranks, len(shard) / max(seconds, 1e-6), temperature))
    if ranks.is_first:
        LOG.info("validated, %d bytes exchanged", sent)
    if was_training:
        model.train()
    return values


def speeds(ranks: Ranks, texts_a_second: float, temperature: float) -> dict[str, float]:
    own = torch.tensor([texts_a_second, temperature])
    everybody = [torch.zeros_like(own) for _ in range(ranks.world)]
    dist.all_gather(everybody, own)
    table = torch.stack(everybody)
    slowest = int(table[:, 0].argmin())
    if slowest == ranks.rank and float(table[slowest, 0]) * 4 < float(table[:, 0].mean()):
        LOG.debug("this rank validates slowly")
    return {"speed": float(table[:, 0].mean()), "temperature": float(table[:, 1].median())}
