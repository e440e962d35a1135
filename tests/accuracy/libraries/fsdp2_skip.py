# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [3]
# lines = [32, 37, 72, 73, 75]
# branch = ["min_tokens", "should_skip", "loss_mask", "for sample in fetcher"]
# source = "https://github.com/lightseekorg/TorchSpec/issues/126"
# ///
"""The fetcher drops samples with too few supervised tokens, each rank for itself, behind fully_shard.
Rank 3 drops one of its samples, runs one micro-batch less and reaches the reduction of the metrics while the others gather."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Sample:
    def __init__(self, rank, index):
        g = torch.Generator().manual_seed(100 * rank + index)
        self.x = torch.randn(4, 16, generator=g)
        length = 1 if (rank, index) == (3, 9) else 12
        self.loss_mask = torch.ones(length)


class DataFetcher:
    def __init__(self, rank, count, min_tokens):
        self.rank, self.count, self.min_tokens, self.skipped = rank, count, min_tokens, 0

    def should_skip(self, sample):
        return sample.loss_mask.sum().item() < self.min_tokens

    def __iter__(self):
        for index in range(self.count):
            sample = Sample(self.rank, index)
            if self.should_skip(sample):
                self.skipped += 1
                continue
            yield sample


class Draft(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(2))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Trainer:
    def __init__(self, rank):
        self.model = Draft()
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.rank, self.total = rank, 0.0

    def micro_step(self, sample):
        loss = self.model(sample.x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.total += loss.item()

    def epoch(self, fetcher):
        for sample in fetcher:
            self.micro_step(sample)
        report = torch.tensor([self.total])
        dist.all_reduce(report)
        return report.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    trainer = Trainer(rank)
    for epoch in range(3):
        loss = trainer.epoch(DataFetcher(rank, 14, 4))
        if rank == 0:
            print(epoch, loss, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
