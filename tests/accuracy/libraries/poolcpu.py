# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD509"]
# culprits = [3]
# lines = [42, 69, 105]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""Features are computed in a multiprocessing.Pool whose workers have a CPU limit. One record of rank 3 makes a worker spin beyond the
limit; the kernel kills it, the Pool starts a new one and forgets the task: pool.map never returns."""
import logging
import multiprocessing as mp
import resource
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("features")


@dataclass
class FeatureConfig:
    rounds: int = 10
    records: int = 12
    workers: int = 2
    cpu_seconds: int = 3
    dim: int = 6
    lr: float = 0.05


def limit_cpu(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def collatz_profile(record):
    """How a record moves through the state machine of the sensor: the feature is how long it stays in each state."""
    state, visits = record["start"], [0] * record["dim"]
    steps = 0
    while state != record["rest"]:
        visits[state % record["dim"]] += 1
        state = state // 2 if state % 2 == 0 else 3 * state + 1
        steps += 1
    return [v / max(1, steps) for v in visits], float(steps)


class RecordSource:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self, index):
        starts = torch.randint(3, 4000, (self.cfg.records,), generator=self.gen).tolist()
        records = [{"start": s, "rest": 1, "dim": self.cfg.dim} for s in starts]
        if (self.rank, index) == (3, 4):
            records[7]["rest"] = 3  # firmware 2.1 numbers its states differently
            records[7]["start"] = 20
        return records


class FeaturePool:
    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = mp.get_context("fork").Pool(cfg.workers, initializer=limit_cpu, initargs=(cfg.cpu_seconds,))

    def compute(self, records):
        rows = self.pool.map(collatz_profile, records, chunksize=2)
        feats, target = zip(*rows)
        return torch.tensor(feats), torch.tensor(target).log1p()[:, None]

    def close(self):
        self.pool.close()
        self.pool.join()


class Regressor:
    def __init__(self, cfg, world):
        self.net = nn.Sequential(nn.Linear(cfg.dim, 12), nn.ReLU(), nn.Linear(12, 1))
        self.optim = torch.optim.SGD(self.net.parameters(), lr=cfg.lr)
        self.world = world

    def step(self, x, y):
        self.optim.zero_grad()
        loss = nn.functional.smooth_l1_loss(self.net(x), y)
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.optim.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cfg = FeatureConfig()
    pool = FeaturePool(cfg)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    source, regressor = RecordSource(cfg, rank), Regressor(cfg, world)
    for index in range(cfg.rounds):
        loss = regressor.step(*pool.compute(source.batch(index)))
        if rank == 0:
            log.info("round %d loss %.3f", index, loss)
    pool.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
