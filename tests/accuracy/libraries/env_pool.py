# /// hangdoc
# watch = "--give-up-after 8"
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD701", "HD509", "HD401"]
# culprits = [2]
# lines = [55, 71, 102, 103, 111, 116, 120, 133]
# branch = ["float(reward.max()) > self.spec.reward_limit"]
# source = "https://github.com/openai/gym/issues/1544"
# ///
"""Policy-gradient training; every rank steps a pool of environments in child processes."""
import logging
import multiprocessing as mp
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("pool")


@dataclass(frozen=True)
class Spec:
    obs: int = 6
    actions: int = 3
    horizon: int = 25
    reward_limit: float = 40.0


class Track:
    """A cart on a track; the wind grows with the seed."""

    def __init__(self, spec: Spec, seed: int):
        self.spec, self.rng = spec, np.random.default_rng(seed)
        self.wind = 1.0 + 0.04 * (seed % 30)
        self.reset()

    def reset(self) -> np.ndarray:
        self.t, self.state = 0, self.rng.normal(size=self.spec.obs)
        return self.state

    def step(self, action: int):
        self.t += 1
        self.state = self.state * self.wind ** 0.25 + 0.1 * (action - 1)
        reward = float(np.abs(self.state).sum())
        done = self.t >= self.spec.horizon
        return (self.reset() if done else self.state), reward, done


def serve(pipe, spec: Spec, seed: int) -> None:
    env = Track(spec, seed)
    while True:
        cmd, arg = pipe.recv()
        if cmd == "step":
            pipe.send(env.step(arg))
        elif cmd == "reset":
            pipe.send(env.reset())
        else:
            pipe.close()
            return


class VectorEnv:
    def __init__(self, spec: Spec, seeds: list):
        self.spec, ctx = spec, mp.get_context("fork")
        self.pipes, self.procs = [], []
        for seed in seeds:
            ours, theirs = ctx.Pipe()
            proc = ctx.Process(target=serve, args=(theirs, spec, seed), name=f"env-{seed}")
            proc.start()
            self.pipes.append(ours)
            self.procs.append(proc)

    def _ask(self, cmd: str, args: list) -> list:
        for pipe, arg in zip(self.pipes, args):
            pipe.send((cmd, arg))
        return [pipe.recv() for pipe in self.pipes]

    def reset(self) -> np.ndarray:
        return np.stack(self._ask("reset", [None] * len(self.pipes)))

    def step(self, actions: list):
        obs, reward, done = zip(*self._ask("step", actions))
        return np.stack(obs), np.array(reward), np.array(done)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(("close", None))
        for proc in self.procs:
            proc.join()


class Agent:
    def __init__(self, spec: Spec, venv: VectorEnv):
        self.spec, self.venv = spec, venv
        self.policy = torch.nn.Linear(spec.obs, spec.actions)
        self.obs = venv.reset()

    def _validate(self, reward: np.ndarray) -> None:
        if float(reward.max()) > self.spec.reward_limit:
            raise ValueError(f"reward {reward.max():.1f} is beyond the limit {self.spec.reward_limit}")

    def collect(self, steps: int) -> torch.Tensor:
        terms = []
        for _ in range(steps):
            pick = torch.distributions.Categorical(logits=self.policy(torch.from_numpy(self.obs).float()))
            action = pick.sample()
            self.obs, reward, _ = self.venv.step(action.tolist())
            self._validate(reward)
            terms.append(pick.log_prob(action) * torch.from_numpy(reward))
        return -torch.stack(terms).mean()

    def update(self, steps: int) -> float:
        loss = self.collect(steps)
        self.policy.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.data -= 1e-3 * p.grad / dist.get_world_size()
        return loss.item()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank, spec = dist.get_rank(), Spec()
    venv = VectorEnv(spec, seeds=[rank * 10 + k for k in range(3)])
    agent = Agent(spec, venv)
    for n in range(40):
        loss = agent.update(steps=5)
        if n % 5 == 0:
            log.info("rank %d update %d loss %.3f", rank, n, loss)
    venv.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
