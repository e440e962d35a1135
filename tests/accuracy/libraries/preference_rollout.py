# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits_any = [[0], [1]]
# lines = [76, 77]
# branch = ["tokens.size(1) < self.cfg.max_len and not finished.all()", "not finished.all()", "finished.all()"]
# source = "https://github.com/huggingface/transformers/issues/30228"
# ///
"""Collect greedy rollouts from a sharded policy between updates (fully_shard)."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("rollout")


@dataclass
class RolloutConfig:
    vocab: int = 96
    dim: int = 32
    layers: int = 3
    max_len: int = 24
    prompts: int = 3
    rounds: int = 200
    eos: int = 0
    inner_steps: int = 2


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, h):
        steps = torch.arange(1, h.size(1) + 1, dtype=h.dtype).view(1, -1, 1)
        h = h + self.mix(h.cumsum(1) / steps)
        return h + self.ff(self.norm(h))


class Policy(nn.Module):
    def __init__(self, cfg: RolloutConfig):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.ModuleList(Layer(cfg.dim) for _ in range(cfg.layers))
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        h = self.emb(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


class Collector:
    def __init__(self, policy: nn.Module, cfg: RolloutConfig):
        self.policy = policy
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(300 + dist.get_rank())

    def prompts(self):
        return torch.randint(1, self.cfg.vocab, (self.cfg.prompts, 4), generator=self.gen)

    @torch.no_grad()
    def rollout(self, tokens):
        finished = torch.zeros(len(tokens), dtype=torch.bool)
        while tokens.size(1) < self.cfg.max_len and not finished.all():
            logits = self.policy(tokens)[:, -1]
            choice = torch.multinomial(logits.softmax(-1), 1, generator=self.gen).squeeze(1)
            choice = torch.where(finished, torch.full_like(choice, self.cfg.eos), choice)
            finished |= choice == self.cfg.eos
            tokens = torch.cat([tokens, choice[:, None]], dim=1)
        return tokens, finished


def reward(tokens, eos):
    lengths = (tokens != eos).sum(1).float()
    return -(lengths - 12.0).abs() / 12.0


def improve(policy, opt, tokens, cfg):
    gain = reward(tokens, cfg.eos)
    gain = gain - gain.mean()
    for _ in range(cfg.inner_steps):
        opt.zero_grad()
        logp = F.log_softmax(policy(tokens[:, :-1]), -1)
        picked = logp.gather(-1, tokens[:, 1:, None]).squeeze(-1).mean(1)
        (-(gain * picked).mean()).backward()
        opt.step()
    return gain.std().item()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = RolloutConfig()
    torch.manual_seed(7)
    policy = Policy(cfg)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in policy.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    collector = Collector(policy, cfg)
    for step in range(cfg.rounds):
        tokens, finished = collector.rollout(collector.prompts())
        spread = improve(policy, opt, tokens, cfg)
        log.info("rank %d round %d length %d finished %d spread %.3f", dist.get_rank(), step, tokens.size(1), int(finished.sum()), spread)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
