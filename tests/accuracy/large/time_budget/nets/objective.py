"""The loss of a batch."""

import torch
from torch.nn.functional import binary_cross_entropy, cross_entropy


def objective(outputs, batch, weights, rare=None):
    """Scalar loss, and how many samples were hard."""
    scores, cleaned = outputs
    kinds = cross_entropy(scores, batch["kind"], reduction="none", label_smoothing=weights["smooth"])
    if weights["focus"] > 0:
        sure = scores.softmax(-1).gather(1, batch["kind"][:, None])[:, 0].detach()
        kinds = kinds * (1 - sure) ** weights["focus"]
    if rare is not None and bool((batch["kind"] == rare).any()):
        kinds = torch.where(batch["kind"] == rare, 1.3 * kinds, kinds)
    pixels = binary_cross_entropy(cleaned, batch["clean"].clamp(0, 1), reduction="none").mean(dim=(1, 2))
    both = kinds + weights["clean"] * pixels
    hard = both.detach() > both.detach().mean() * 1.5
    if bool(hard.any()) and not bool(hard.all()):
        both = torch.where(hard, (1 + weights["hard"]) * both, both)
    return both.mean(), int(hard.sum())
