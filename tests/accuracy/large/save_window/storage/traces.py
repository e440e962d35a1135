"""Bad forecasts, written to scratch as they come."""

import json
from pathlib import Path

import torch

from setup.options import TraceOptions
from surrogate.losses import persistence, relative_errors


class Traces:
    def __init__(self, folder: Path, options: TraceOptions) -> None:
        self.folder = folder
        self.options = options
        self.written = 0
        folder.mkdir(parents=True, exist_ok=True)
        for stale in self.files():
            stale.unlink()

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.suffix == ".json")

    def used(self) -> int:
        """Bytes in scratch."""
        return sum(path.stat().st_size for path in self.files())

    def keep_bad(self, step: int, start: torch.Tensor, forecast: torch.Tensor, truth: torch.Tensor) -> int:
        """Those forecasts that are worse than nothing changing, by the threshold; returns how many."""
        errors = relative_errors(forecast, truth)
        base = persistence(start, truth).clamp_min(1e-2)
        bad = [index for index, ratio in enumerate((errors / base).tolist()) if ratio > self.options.threshold]
        steep = [index for index in range(len(start)) if index not in bad and self._is_steep(truth[index])]
        kept = (bad + steep)[: self.options.most_per_step]
        for index in kept:
            entry = {
                "step": step,
                "error": round(float(errors[index]), 4),
                "start": [round(value, 3) for value in start[index].tolist()],
                "truth": [round(value, 3) for value in truth[index, -1].tolist()],
            }
            path = self.folder / f"{step:06d}-{index}.json"
            path.write_text(json.dumps(entry))
            self.written += 1
        return len(kept)

    @staticmethod
    def _is_steep(truth: torch.Tensor) -> bool:
        return float((truth.roll(-1, -1) - truth).abs().max()) > 0.9

    def take(self) -> list[str]:
        """The content of all files, which are then gone."""
        found = []
        for path in self.files():
            found.append(path.read_text())
            path.unlink()
        return found
