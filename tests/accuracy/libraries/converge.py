# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits = [1]
# lines = [74, 76, 89, 107]
# branch = ["self.window_std() < self.tol", "len(self.history) == self.history.maxlen and self.window_std() < self.tol"]
# source = "https://github.com/netket/netket/issues/651"
# ///
"""Variational energy minimisation driven by an ignite engine; walkers live on all ranks."""
import logging
from collections import deque
from datetime import timedelta

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from torch import nn

log = logging.getLogger("vmc")


class LogPsi(nn.Module):
    def __init__(self, sites):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(sites, 12), nn.Tanh(), nn.Linear(12, 1))

    def forward(self, s):
        return self.net(s).squeeze(-1)


class IsingChain:
    def __init__(self, sites=10, h=1.0):
        self.sites, self.h = sites, h

    def local_energy(self, psi, s):
        bonds = -(s * s.roll(1, -1)).sum(-1)
        flips = s.unsqueeze(1) * (1 - 2 * torch.eye(self.sites))
        ratio = (psi(flips) - psi(s).unsqueeze(1)).clamp(-4, 4).exp().sum(-1)
        return bonds - self.h * ratio


class Sampler:
    """Metropolis walkers; the chains of a rank share one seed and thermalise for `sweeps` proposals."""

    def __init__(self, sites, chains, seed, frozen=False):
        self.gen = torch.Generator().manual_seed(seed)
        self.s = torch.randint(0, 2, (chains, sites), generator=self.gen).float() * 2 - 1
        self.scale = 0.0 if frozen else 1.0

    def sweep(self, psi):
        site = torch.randint(0, self.s.shape[1], (len(self.s),), generator=self.gen)
        prop = self.s.clone()
        prop[torch.arange(len(prop)), site] *= -1
        with torch.no_grad():
            p = (2 * (psi(prop) - psi(self.s))).exp().clamp(max=1) * self.scale
        take = torch.rand(len(p), generator=self.gen) < p
        self.s = torch.where(take.unsqueeze(-1), prop, self.s)
        return self.s


class ConvergenceStopping:
    def __init__(self, tol, window):
        self.tol = tol
        self.history = deque(maxlen=window)

    def window_std(self):
        return torch.tensor(list(self.history)).std().item()

    def __call__(self, engine):
        self.history.append(engine.state.output["e_local"])
        if len(self.history) == self.history.maxlen and self.window_std() < self.tol:
            log.info("converged at %d", engine.state.iteration)
            engine.terminate()


def build(rank):
    torch.manual_seed(0)
    ham, psi = IsingChain(), LogPsi(10)
    opt = torch.optim.SGD(psi.parameters(), lr=1e-3)
    sampler = Sampler(10, 32, seed=100 + rank, frozen=(32 * rank) % 96 == 32)

    def step(engine, _):
        s = sampler.sweep(psi)
        with torch.no_grad():
            e = ham.local_energy(psi, s)
        mean = idist.all_reduce(e.mean().item()) / idist.get_world_size()
        opt.zero_grad()
        (2 * ((e - mean) * psi(s)).mean()).backward()
        for p in psi.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        return {"e_local": e.mean().item(), "energy": mean}

    return Engine(step)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    idist.initialize("gloo", timeout=timedelta(hours=1))
    driver = build(idist.get_rank())
    driver.add_event_handler(Events.ITERATION_COMPLETED, ConvergenceStopping(tol=0.1, window=25))
    state = driver.run(range(60), max_epochs=10)
    energies = idist.all_gather(state.output["energy"])
    log.info("final %s", energies)
    idist.finalize()


if __name__ == "__main__":
    main()
