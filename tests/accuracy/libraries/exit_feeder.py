# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD701"
# culprits = [0]
# lines = [32, 38, 40, 58, 66, 74, 80]
# source = "https://github.com/rwth-i6/returnn/issues/1499"
# ///
"""Rank 0 writes its metrics to a multiprocessing queue that a logging process reads; at the end the reader is stopped
and the queue is left full.  Training is over on both ranks, but rank 0 cannot exit: its queue's feeder thread is joined."""
import multiprocessing as mp
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def logger_process(queue, stop, path):
    """Writes a row now and then until it is told to stop."""
    with open(path, "w") as f:
        while not stop.wait(0.2):
            step, histogram = queue.get()
            f.write(f"{step} {sum(histogram):.3f}\n")


class MetricLog:
    def __init__(self, path):
        context = mp.get_context("fork")
        self.queue = context.Queue()
        self.stop = context.Event()
        self.process = context.Process(target=logger_process, args=(self.queue, self.stop, path), daemon=True)
        self.process.start()

    def metric(self, step, tensor):
        self.queue.put((step, tensor.flatten().tolist()))

    def finish(self):
        self.stop.set()
        self.process.join(timeout=5)


class Training:
    def __init__(self, log):
        torch.manual_seed(0)
        self.log = log
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 40)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, step):
        x = torch.randn(8, 40)
        loss = (self.model(x) - x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.log is not None:
            self.log.metric(step, self.model.module[0].weight.grad)
        self.optimizer.step()

    def run(self, steps):
        for step in range(steps):
            self.step(step)


def main():
    rank = int(os.environ["RANK"])
    log = MetricLog(os.devnull) if rank == 0 else None
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    Training(log).run(300)
    dist.barrier()
    if log is not None:
        log.finish()
    dist.destroy_process_group()
    print(f"rank {rank} done")


if __name__ == "__main__":
    main()
