# /// hangdoc
# launch = "python"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102", "HD106"]
# culprits = [3]
# lines = [42, 49, 51, 94, 103, 104, 107]
# branch = ["len(boxes) == 0", "score > self.threshold"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/626"
# ///
"""Validates a toy detector on video clips: every rank collects its matches in a torchmetrics metric, whose result all ranks compute together."""
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchmetrics import Metric

log = logging.getLogger("detect")
WORLD = 4


@dataclass
class EvalConfig:
    clips: int = 32
    frames: int = 5
    threshold: float = 0.6
    rounds: int = 3


class ClipRecall(Metric):
    """Keeps the mean overlap of every clip until the end of the round, so that recall can be had at any level."""

    full_state_update = False

    def __init__(self, levels):
        super().__init__()
        self.levels = levels
        self.add_state("overlaps", default=[], dist_reduce_fx=None)
        self.add_state("truths", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("clips", default=torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, boxes, targets):
        self.truths += len(targets)
        self.clips += 1
        if len(boxes) == 0:
            return
        self.overlaps.append(pairwise_iou(targets, boxes).max(dim=1).values.mean())

    def compute(self):
        if not self.overlaps:
            return torch.zeros(len(self.levels))
        best = torch.cat([torch.as_tensor(o).flatten() for o in self.overlaps])
        return torch.stack([(best > level).sum() / self.clips.clamp_min(1) for level in self.levels])


def pairwise_iou(a, b):
    top_left = torch.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (bottom_right - top_left).clamp_min(0).prod(-1)
    area = lambda r: (r[:, 2:] - r[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


class ClipArchive:
    """Clips sorted by time of recording; a split of neighbouring clips goes to each rank."""

    def __init__(self, cfg, rank):
        per = cfg.clips // WORLD
        self.numbers = range(rank * per, (rank + 1) * per)
        self.cfg = cfg

    def visibility(self, number):
        return 1.0 if number < self.cfg.clips - 1 else 0.05     # the last one is from after sunset

    def __iter__(self):
        for number in self.numbers:
            gen = torch.Generator().manual_seed(number)
            corner = torch.rand(self.cfg.frames, 2, generator=gen)
            size = 0.1 + 0.4 * torch.rand(self.cfg.frames, 2, generator=gen)
            yield torch.cat([corner, corner + size], dim=1), self.visibility(number), gen


class Detector:
    def __init__(self, threshold):
        self.threshold = threshold

    def __call__(self, truth, visibility, gen):
        jitter = 0.05 * torch.randn(truth.shape, generator=gen)
        score = visibility * (0.75 + 0.2 * torch.rand(len(truth), generator=gen))
        keep = score > self.threshold
        return (truth + jitter)[keep]


def validate(cfg, rank):
    detector = Detector(cfg.threshold)
    metric = ClipRecall(levels=(0.3, 0.5, 0.7))
    for number in range(cfg.rounds):
        for truth, visibility, gen in ClipArchive(cfg, rank):
            metric.update(detector(truth, visibility, gen), truth)
        recall = metric.compute()
        log.info("round %d recall %s", number, [round(v, 3) for v in recall.tolist()])
        metric.reset()
        dist.barrier()
        detector.threshold += 0.05


def worker(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    validate(EvalConfig(), rank)
    dist.destroy_process_group()


def main():
    run_dir = tempfile.mkdtemp(prefix="detect-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(os.path.join(run_dir, "rendezvous"),), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
