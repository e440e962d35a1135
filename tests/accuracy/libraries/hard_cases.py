# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits_any = [[0], [1, 2]]
# lines = [50, 54, 55, 56, 75, 80]
# branch = ["not self.cases", "score < self.threshold"]
# source = "https://github.com/bo-ke/llm-internal-medicine/pull/45"
# ///
"""Validates a toy segmentation model with MONAI and collects the worst cases of all ranks for review."""
import logging
import warnings
from dataclasses import dataclass

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from monai.data import partition_dataset
from monai.metrics import DiceHelper
from monai.utils import evenly_divisible_all_gather

log = logging.getLogger("validate")


@dataclass
class Case:
    number: int
    image: torch.Tensor
    mask: torch.Tensor


def make_case(i, size=12):
    gen = torch.Generator().manual_seed(i)
    mask = torch.zeros(1, 1, size, size)
    mask[..., 2:9, 3:8] = 1
    noise = 0.1 if i % 3 == 0 else 0.1 + 0.05 * (i // 6)
    return Case(i, mask + noise * torch.randn(mask.shape, generator=gen), mask)


class HardCaseLog:
    """Keeps numbers and scores of the cases below a threshold."""

    def __init__(self, threshold):
        self.threshold = threshold
        self.cases = []

    def add(self, case, score):
        if score < self.threshold:
            self.cases.append([float(case.number), score])

    def summary(self):
        if not self.cases:
            return torch.empty(0, 2)
        return evenly_divisible_all_gather(torch.tensor(self.cases))


class Validator:
    def __init__(self, cases, threshold=0.985):
        self.cases = cases
        self.dice = DiceHelper(include_background=True, threshold=True, get_not_nans=False)
        self.hard = HardCaseLog(threshold)
        self.scores = []
        self.bias = 0.5

    def predict(self, case):
        return 20.0 * (case.image - self.bias)

    def run(self):
        for case in self.cases:
            score = self.dice(y_pred=self.predict(case), y=case.mask).mean().item()
            self.scores.append(score)
            self.hard.add(case, score)
        worst = self.hard.summary()
        return self.aggregate(), worst

    def aggregate(self):
        sums = torch.tensor([sum(self.scores), float(len(self.scores))])
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()


def report(epoch, mean, worst):
    if dist.get_rank() == 0:
        log.info("epoch %d: mean dice %.4f, %d hard cases", epoch, mean, len(worst))


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    numbers = partition_dataset(data=list(range(36)), num_partitions=world, shuffle=False)[rank]
    cases = [make_case(i) for i in numbers]
    for epoch, threshold in enumerate((1.5, 1.2, 1.01, 0.97)):
        mean, worst = Validator(cases, threshold).run()
        report(epoch, mean, worst)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
