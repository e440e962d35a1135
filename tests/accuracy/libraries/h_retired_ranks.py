# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "healthy"
# source = "https://github.com/pytorch/ignite/issues/2185"
# ///
"""Training on three processes and tokenising helpers on two: the helpers finish early and leave with status 0 while the
trainers go on in their own group; rank-0-only logging and a group of its own for metrics."""
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("roles")


@dataclass
class RoleConfig:
    trainers: int = 3
    steps: int = 40
    pace: float = 0.3


class Helper:
    def __init__(self, rank):
        self.rank = rank

    def run(self, payloads):
        done = [sum(ord(c) for c in p) for p in payloads]
        log.info("helper %d tokenised %d texts", self.rank, len(done))
        return done


class TrainerRole:
    def __init__(self, cfg, group, metrics):
        self.cfg, self.group, self.metrics = cfg, group, metrics
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(8, 1), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def run(self):
        for step in range(self.cfg.steps):
            x = torch.randn(4, 8)
            loss = self.model(x).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(self.cfg.pace)
            if step % 10 == 9:
                value = loss.detach().reshape(1).clone()
                dist.all_reduce(value, group=self.metrics)
                if dist.get_rank() == 0:
                    log.info("step %d loss %.4f", step, value.item() / self.cfg.trainers)


def main():
    torch.set_num_threads(1)
    cfg = RoleConfig()
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    members = list(range(cfg.trainers))
    group, metrics = dist.new_group(members), dist.new_group(members)
    box = [[f"text {i}" for i in range(20)]] if rank == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    if rank in members:
        TrainerRole(cfg, group, metrics).run()
        dist.barrier(group=group)
    else:
        Helper(rank).run(box[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
