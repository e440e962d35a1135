"""Metrics whose states are sums, so that the states of several ranks can be added."""

from __future__ import annotations

import torch

from data.batches import Batch


class Metric:
    """``states``: name to tensor, all of which are reduced by adding."""

    name = ""

    def __init__(self) -> None:
        self.states: dict[str, torch.Tensor] = {}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        raise NotImplementedError

    def compute(self) -> dict[str, float]:
        raise NotImplementedError


class MeanLoss(Metric):
    name = "loss"

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.states = {"sum": torch.zeros((), dtype=dtype), "count": torch.zeros((), dtype=torch.int64)}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        finite = losses[torch.isfinite(losses)]
        if len(finite):
            self.states["sum"] += finite.sum().to(self.states["sum"].dtype)
            self.states["count"] += len(finite)

    def compute(self) -> dict[str, float]:
        count = int(self.states["count"])
        return {"loss": float(self.states["sum"]) / count if count else float("nan")}


class Accuracy(Metric):
    name = "accuracy"

    def __init__(self) -> None:
        super().__init__()
        self.states = {"right": torch.zeros(2, dtype=torch.int64), "all": torch.zeros(2, dtype=torch.int64)}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        right = scores.argmax(dim=-1) == batch.tags
        for row, chosen in enumerate((~batch.rare, batch.rare)):
            if bool(chosen.any()):
                self.states["right"][row] += int(right[chosen].sum())
                self.states["all"][row] += int(chosen.sum())

    def compute(self) -> dict[str, float]:
        right, total = self.states["right"], self.states["all"]
        values = {"accuracy": float(right.sum()) / max(1, int(total.sum()))}
        if int(total[1]) > 0:
            values["accuracy_rare"] = float(right[1]) / int(total[1])
        return values


class MacroF1(Metric):
    name = "f1"

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.states = {part: torch.zeros(tags) for part in ("hits", "guessed", "true")}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        guesses = scores.argmax(dim=-1)
        for tag in range(len(self.states["hits"])):
            guessed, true = guesses == tag, batch.tags == tag
            if not bool(guessed.any()) and not bool(true.any()):
                continue
            self.states["hits"][tag] += (guessed & true).sum()
            self.states["guessed"][tag] += guessed.sum()
            self.states["true"][tag] += true.sum()

    def compute(self) -> dict[str, float]:
        scores = []
        for hits, guessed, true in zip(
            *(self.states[part].tolist() for part in ("hits", "guessed", "true")), strict=True
        ):
            if true == 0:
                continue
            scores.append(2 * hits / (guessed + true) if hits else 0.0)
        return {"f1": sum(scores) / len(scores) if scores else 0.0}


class Confusion(Metric):
    name = "confusion"

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.tags = tags
        self.states = {"table": torch.zeros(tags, tags, dtype=torch.int64)}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        cells = batch.tags * self.tags + scores.argmax(dim=-1)
        self.states["table"] += torch.bincount(cells, minlength=self.tags**2).view(self.tags, self.tags)

    def compute(self) -> dict[str, float]:
        table = self.states["table"].clone()
        table.fill_diagonal_(0)
        worst = int(table.argmax())
        if int(table.view(-1)[worst]) == 0:
            return {}
        return {"worst_true": float(worst // self.tags), "worst_guess": float(worst % self.tags)}


class LengthBuckets(Metric):
    """Right answers for short, middle and long texts."""

    name = "length"
    limits = (6, 14)

    def __init__(self) -> None:
        super().__init__()
        self.states = {"right": torch.zeros(3), "all": torch.zeros(3)}

    def update(self, scores: torch.Tensor, losses: torch.Tensor, batch: Batch) -> None:
        right = (scores.argmax(dim=-1) == batch.tags).float()
        for length, hit in zip(batch.lengths.tolist(), right.tolist(), strict=True):
            place = 0 if length <= self.limits[0] else 1 if length <= self.limits[1] else 2
            self.states["right"][place] += hit
            self.states["all"][place] += 1

    def compute(self) -> dict[str, float]:
        parts = zip(
            ("short", "middle", "long"), self.states["right"].tolist(), self.states["all"].tolist(), strict=True
        )
        return {f"accuracy_{name}": right / total for name, right, total in parts if total > 0}
