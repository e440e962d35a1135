# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits_any = [[1], [0, 2]]
# lines = [56, 85, 86]
# branch = ["len(b) >= self.cfg.min_batch"]
# source = "https://github.com/verl-project/verl/issues/6967"
# ///
"""Ray actors that average gradients over a gloo group. The driver calls update only on the learners whose replay batch is large
enough; in round 4 learner 1 gets no call and is idle, the other two wait in all_reduce and the driver in ray.get."""
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import ray
import torch

log = logging.getLogger("learners")


@dataclass
class LearnerConfig:
    learners: int = 3
    rounds: int = 12
    min_batch: int = 4
    state: int = 6
    lr: float = 0.05


@ray.remote(num_cpus=1)
class Learner:
    def __init__(self, cfg, rank, init_file):
        import torch.distributed as dist

        os.environ.update(RANK=str(rank), WORLD_SIZE=str(cfg.learners))
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.cfg, self.rank, self.dist = cfg, rank, dist
        self.net = torch.nn.Sequential(torch.nn.Linear(cfg.state, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.optim = torch.optim.SGD(self.net.parameters(), lr=cfg.lr)
        dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=cfg.learners, timeout=timedelta(minutes=30))

    def ready(self):
        return self.rank

    def update(self, batch):
        states = torch.tensor([b["state"] for b in batch])
        returns = torch.tensor([[b["return"]] for b in batch])
        self.optim.zero_grad()
        loss = (self.net(states) - returns).pow(2).mean()
        loss.backward()
        for p in self.net.parameters():
            self.dist.all_reduce(p.grad)
            p.grad /= self.cfg.learners
        self.optim.step()
        return loss.item()


class ReplayShards:
    """Transitions by the shard of the player; a shard may be short of fresh ones."""

    def __init__(self, cfg):
        self.cfg, self.gen = cfg, torch.Generator().manual_seed(2)

    def draw(self, round_):
        sizes = torch.randint(5, 12, (self.cfg.learners,), generator=self.gen).tolist()
        if round_ == 4:
            sizes[1] = 2  # most of the players of this shard are offline
        states = [torch.randn(n, self.cfg.state, generator=self.gen) for n in sizes]
        return [[{"state": row.tolist(), "return": float(row.sum())} for row in s] for s in states]


class Driver:
    def __init__(self, cfg):
        self.cfg, self.replay = cfg, ReplayShards(cfg)
        init_file = os.path.join(tempfile.mkdtemp(prefix="learners-"), "rendezvous")
        self.learners = [Learner.remote(cfg, r, init_file) for r in range(cfg.learners)]
        ray.get([l.ready.remote() for l in self.learners])

    def round(self, index):
        batches = self.replay.draw(index)
        calls = [l.update.remote(b) for l, b in zip(self.learners, batches) if len(b) >= self.cfg.min_batch]
        losses = ray.get(calls)
        log.info("round %d: %d learners, loss %.3f", index, len(losses), sum(losses) / len(losses))

    def run(self):
        for index in range(self.cfg.rounds):
            self.round(index)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    Driver(LearnerConfig()).run()
    ray.shutdown()


if __name__ == "__main__":
    main()
