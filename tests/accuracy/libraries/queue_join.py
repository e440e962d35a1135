# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [36, 45, 47]
# source = "https://github.com/jonatanjacobsson/ifcpipeline/pull/28"
# ///
"""Each rank scores its part in a child process that returns the result through a Queue; the parent joins it before it reads.
On rank 1 the result is larger than the pipe holds: the child cannot end before it is read, the parent does not read before it ends."""
import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MATCHES = {0: 20, 1: 40000, 2: 35}


def score(part, queue):
    queue.put({"part": part, "matches": [f"{part}-{i}" for i in range(MATCHES[part])]})


class Isolated:
    """Runs a function in a child of its own, so that its leaks die with it."""

    def __init__(self, function):
        self.function, self.context = function, multiprocessing.get_context("fork")

    def run(self, *args):
        queue = self.context.Queue()
        child = self.context.Process(target=self.function, args=(*args, queue))
        child.start()
        child.join()
        return queue.get()


class Evaluation:
    def __init__(self, rank):
        self.rank = rank

    def run(self):
        result = Isolated(score).run(self.rank)
        count = torch.tensor([len(result["matches"])])
        dist.all_reduce(count)
        return count.item()


def train(model, steps):
    for _ in range(steps):
        model(torch.randn(3, 5)).sum().backward()


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(5, 2))
    evaluation = Evaluation(dist.get_rank())
    for epoch in range(3):
        train(model, 4)
        print(epoch, evaluation.run(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
