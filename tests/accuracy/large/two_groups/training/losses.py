"""The loss of masked tokens, and what the ledger wants to know of it."""

import torch
from torch.nn import functional


def masked_loss(logits, targets):
    """Mean cross entropy over the tokens that are asked for; 0 where none is."""
    asked = targets >= 0
    if not bool(asked.any()):
        return logits.sum() * 0.0
    return functional.cross_entropy(logits[asked], targets[asked])


@torch.no_grad()
def hits(logits, targets, topk):
    """(how many of the asked tokens are among the best ``topk``, how many are asked)."""
    asked = targets >= 0
    count = int(asked.sum())
    if count == 0:
        return 0, 0
    best = logits[asked].topk(min(topk, logits.shape[-1]), dim=-1).indices
    return int((best == targets[asked][:, None]).any(dim=-1).sum()), count
