# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# cause = "HD103"
# culprits = [1]
# lines = [25, 41, 51, 57, 64, 66]
# branch = ["except", "finally", "raise ValueError", "max() >= self.vocabulary"]
# source = "https://github.com/pytorch/torchtitan/pull/1342"
# ///
"""The trainer is closed in a finally clause, and closing it waits for all ranks on the checkpoint group.
Rank 1 gets there with an exception pending (a token outside the vocabulary); the others go on training and wait for its gradients."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tokens:
    def __init__(self, rank, vocabulary):
        self.rank, self.vocabulary = rank, vocabulary

    def check(self, ids):
        if ids.max() >= self.vocabulary:
            raise ValueError(f"token {ids.max().item()} is outside the vocabulary")
        return ids

    def __iter__(self):
        for step in range(30):
            ids = torch.randint(0, self.vocabulary, (4, 6))
            if (self.rank, step) == (1, 7):
                ids[2, 3] = self.vocabulary + 5
            yield self.check(ids)


class Checkpointer:
    def __init__(self):
        self.group = dist.new_group(group_desc="checkpoint")

    def close(self):
        dist.barrier(group=self.group)


class Trainer:
    def __init__(self, rank):
        self.model = DDP(nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(48, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.tokens, self.checkpointer = Tokens(rank, 50), Checkpointer()

    def train(self):
        for ids in self.tokens:
            self.model(ids).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def close(self):
        self.checkpointer.close()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank())
    try:
        trainer.train()
    finally:
        trainer.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
