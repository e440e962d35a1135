from collections import Counter

import torch
from torch.nn import functional

from parallel import comm
from utils.meters import Meter


class Validator:
    """Accuracy over all sites, and the loss."""

    def __init__(self, classes, sync_losses):
        self.classes = classes
        self.sync_losses = sync_losses
        self.own_by_class = {}

    @torch.no_grad()
    def __call__(self, model, loader):
        model.eval()
        loss, right, asked = Meter(), Counter(), Counter()
        for images, labels in loader:
            scores = model(images)
            loss.update(float(functional.cross_entropy(scores, labels)), len(labels))
            for label, guess in zip(labels.tolist(), scores.argmax(1).tolist(), strict=True):
                asked[label] += 1
                if label == guess:
                    right[label] += 1
        self.own_by_class = {label: right[label] / asked[label] for label in sorted(asked)}
        numbers = [sum(right.values()), sum(asked.values())]
        if self.sync_losses:
            numbers += [loss.total, loss.count]
        summed = comm.sum_of(numbers)
        metrics = {"accuracy": summed[0] / summed[1] if summed[1] else 0.0, "loss": loss.mean}
        if self.sync_losses:
            metrics["loss"] = summed[2] / max(1.0, summed[3])
        return metrics
