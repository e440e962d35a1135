# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits = [4]
# lines = [104, 106]
# branch = ["kl > 1.5 * self.cfg.target_kl"]
# source = "https://github.com/huggingface/trl/pull/254"
# ///
"""PPO with one environment copy per rank and DDP gradients. The policy update ends early when the KL estimate of the mini batch
exceeds the target."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Normal
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("ppo")


@dataclass
class PPOConfig:
    obs: int = 6
    act: int = 2
    hidden: int = 16
    horizon: int = 64
    minibatch: int = 16
    epochs: int = 4
    iterations: int = 40
    gamma: float = 0.97
    clip: float = 0.2
    target_kl: float = 0.03
    lr: float = 3e-3


class Walker:
    """A point mass on rough ground; terrain 4 is the steep one and its readings are large."""

    def __init__(self, cfg, terrain):
        self.cfg, self.g = cfg, torch.Generator().manual_seed(terrain)
        self.scale = 1.0 if terrain != 4 else 3.0
        self.state = torch.zeros(cfg.obs)

    def observe(self):
        return self.state * self.scale

    def step(self, action):
        push = torch.zeros(self.cfg.obs)
        push[: self.cfg.act] = action.clamp(-1, 1)
        self.state = 0.8 * self.state + 0.3 * push + 0.3 * torch.randn(self.cfg.obs, generator=self.g)
        return self.observe(), float(self.state[0] - 0.1 * action.pow(2).sum())


class ActorCritic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(cfg.obs, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.act))
        self.v = nn.Sequential(nn.Linear(cfg.obs, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 1))
        self.log_std = nn.Parameter(torch.full((cfg.act,), -0.5))

    def forward(self, obs):
        return self.pi(obs), self.log_std, self.v(obs).squeeze(-1)


class Learner:
    def __init__(self, cfg, rank):
        self.cfg, self.env = cfg, Walker(cfg, rank)
        torch.manual_seed(0)
        self.policy = DDP(ActorCritic(cfg))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=cfg.lr)
        torch.manual_seed(50 + rank)
        self.early = 0

    @torch.no_grad()
    def rollout(self):
        rows, obs = [], self.env.observe()
        for _ in range(self.cfg.horizon):
            mean, log_std, value = self.policy.module(obs)
            pi = Normal(mean, log_std.exp())
            action = pi.sample()
            following, reward = self.env.step(action)
            rows.append((obs, action, pi.log_prob(action).sum(), torch.tensor(reward), value))
            obs = following
        obs, action, logp, reward, value = (torch.stack(c) for c in zip(*rows))
        returns, running = torch.zeros_like(reward), torch.tensor(0.0)
        for t in reversed(range(len(reward))):
            running = reward[t] + self.cfg.gamma * running
            returns[t] = running
        advantage = returns - value
        return obs, action, logp, returns, (advantage - advantage.mean()) / (advantage.std() + 1e-6), reward.sum().item()

    def update(self, obs, action, logp, returns, advantage):
        for epoch in range(self.cfg.epochs):
            order = torch.randperm(self.cfg.horizon)
            for index in order.split(self.cfg.minibatch):
                mean, log_std, value = self.policy(obs[index])
                new = Normal(mean, log_std.exp()).log_prob(action[index]).sum(-1)
                ratio = (new - logp[index]).exp()
                with torch.no_grad():
                    kl = ((ratio - 1) - ratio.log()).mean().item()
                if kl > 1.5 * self.cfg.target_kl:
                    self.early += 1
                    return epoch
                clipped = ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip)
                loss = -torch.min(ratio * advantage[index], clipped * advantage[index]).mean()
                loss = loss + 0.5 * (value - returns[index]).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()
        return self.cfg.epochs


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg = PPOConfig()
    learner = Learner(cfg, dist.get_rank())
    for iteration in range(cfg.iterations):
        *batch, score = learner.rollout()
        epochs = learner.update(*batch)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (score, epochs))
        if dist.get_rank() == 0:
            log.info("iteration %d return %.2f", iteration, sum(s for s, _ in everyone) / len(everyone))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
