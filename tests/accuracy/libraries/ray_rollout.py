# /// hangdoc
# launch = "python ray_rollout.py"
# requires = ["ray"]
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits_any = [[1]]
# lines = [108, 112]
# branch = ["report[\"kl\"] <= self.cfg.max_kl"]
# source = "https://github.com/ray-project/ray/issues/47204"
# ///
"""Policy-gradient actors under Ray with a gloo group among them: each round every actor rolls out, averages gradients, answers the driver.
The driver leaves an actor out of a round after a large KL; the others' averaging still counts on it, and ray.get waits for them."""
import logging
import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import ray
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("rollout")


@dataclass
class RolloutConfig:
    actors: int = 3
    rounds: int = 12
    horizon: int = 16
    hidden: int = 8
    max_kl: float = 5.0


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, obs):
        return self.net(obs).log_softmax(-1)


class Environment:
    """A pole on a cart, near enough; one of them meets an outlier now and then."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def episode(self, n):
        g = torch.Generator().manual_seed(100 * self.rank + n)
        obs = torch.randn(self.cfg.horizon, 4, generator=g)
        old = torch.full((self.cfg.horizon,), -0.7)
        if self.rank == 1 and n == 6:
            old[3] = -120.0
        return obs, torch.randint(0, 2, (self.cfg.horizon,), generator=g), old


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        torch.set_num_threads(1)

    def connect(self, host, port):
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port), RANK=str(self.rank), WORLD_SIZE=str(self.cfg.actors))
        dist.init_process_group("gloo", timeout=timedelta(minutes=30))
        self.policy = Policy(self.cfg.hidden)
        self.opt = torch.optim.SGD(self.policy.parameters(), lr=0.01)
        self.env = Environment(self.cfg, self.rank)
        return dist.get_rank()

    def _average(self):
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.cfg.actors

    def round(self, n):
        obs, actions, old = self.env.episode(n)
        logp = self.policy(obs).gather(1, actions[:, None]).squeeze(1)
        kl = (old - logp.detach()).abs().mean()
        weights = (logp.detach() - old).clamp(max=2.0).exp()
        loss = -(weights * logp).mean()
        self.opt.zero_grad()
        loss.backward()
        self._average()
        self.opt.step()
        return {"rank": self.rank, "round": n, "loss": loss.item(), "kl": kl.item()}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Driver:
    def __init__(self, cfg):
        self.cfg = cfg
        self.workers = [Worker.remote(cfg, r) for r in range(cfg.actors)]
        ray.get([w.connect.remote("127.0.0.1", port) for port in [free_port()] for w in self.workers])
        self.reports = [{"kl": 0.0}] * cfg.actors

    def trusted(self):
        """Actors whose last rollout was not too far from the policy."""
        return [w for w, report in zip(self.workers, self.reports) if report["kl"] <= self.cfg.max_kl]

    def run(self):
        for n in range(self.cfg.rounds):
            self.reports = ray.get([w.round.remote(n) for w in self.trusted()])
            log.info("round %d: %s", n, [(r["rank"], round(r["loss"], 3)) for r in self.reports])


def main():
    logging.basicConfig(level=logging.INFO)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    Driver(RolloutConfig()).run()
    ray.shutdown()


if __name__ == "__main__":
    main()
