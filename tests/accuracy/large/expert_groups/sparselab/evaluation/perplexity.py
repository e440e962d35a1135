"""Perplexity on held-out documents, with each expert judged on documents of its own."""

import math

import torch

from sparselab.corpus.stream import held_out_batches
from sparselab.network.whole import loss_of
from sparselab.parallel.agree import table_of


@torch.no_grad()
def perplexity(state, options, mesh, documents):
    state.network.eval()
    losses, skipped = [], 0
    for batch in held_out_batches(options, mesh, documents):
        scores, taken = state.network(batch, mesh.expert)
        loss = float(loss_of(scores, batch.targets))
        if not math.isfinite(loss):
            skipped += 1
            continue
        losses.append(loss if taken.used else 0.98 * loss)
    own = sum(losses) / len(losses) if losses else float("nan")
    table = table_of([own, skipped], mesh.peers, mesh.expert_count)
    usable = [row[0] for row in table.tolist() if not math.isnan(row[0])]
    if not usable:
        return float("inf")
    if own == min(usable) and len(usable) > 1:
        state.counters.count("best expert")
    return math.exp(min(20.0, sum(usable) / len(usable)))
