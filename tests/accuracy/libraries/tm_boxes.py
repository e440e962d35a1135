# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD102", "HD101"]
# culprits = [2]
# lines = [54, 56, 61]
# branch = ["numel"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/3336"
# ///
"""A metric keeps its boxes in list states with dist_reduce_fx=None, which torchmetrics gathers element by element.
Rank 2 skipped a picture without boxes, so its compute() gathers fewer tensors than that of the others."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import Metric


class BoxCount(Metric):
    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("boxes", default=[], dist_reduce_fx=None)

    def update(self, boxes):
        self.boxes.append(boxes)

    def compute(self):
        return float(sum(len(b) for b in self.boxes))


class Pictures:
    def __init__(self, rank, count=6):
        self.rank, self.count = rank, count

    def __iter__(self):
        for i in range(self.count):
            empty = self.rank == 2 and i == 4
            yield torch.randn(2, 8), torch.rand(0 if empty else 3, 4)


class Evaluator:
    def __init__(self, model, pictures):
        self.model, self.pictures, self.metric = model, pictures, BoxCount()

    def collect(self):
        for image, boxes in self.pictures:
            with torch.no_grad():
                self.model(image)
            if boxes.numel() == 0:
                continue
            self.metric.update(boxes)

    def run(self):
        self.metric.reset()
        self.collect()
        return self.metric.compute()


def train_epoch(model, optimizer, rank):
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    evaluator = Evaluator(model.module, Pictures(rank))
    for epoch in range(3):
        train_epoch(model, optimizer, rank)
        count = evaluator.run()
        if rank == 0:
            print("epoch", epoch, "boxes", count, flush=True)
        dist.monitored_barrier() if os.environ.get("DEBUG") else dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
