# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [64, 104, 107]
# branch = ["enumerate(micros)", "used + length > budget and current", "used + length > budget", "micros"]
# source = "https://github.com/verl-project/verl/issues/6176"
# ///
"""Actor update with token-budget micro batches on a sharded (FSDP) model."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

log = logging.getLogger("actor")


@dataclass
class ActorConfig:
    max_token_len: int = 64
    mini_batch: int = 6
    updates: int = 30
    vocab: int = 50
    dim: int = 24
    clip: float = 0.2


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 3 * dim)
        self.down = nn.Linear(3 * dim, dim)

    def forward(self, h):
        return h + self.down(torch.relu(self.up(h)))


class Actor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Expert(cfg.dim) for _ in range(2))
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        h = self.emb(ids)
        for b in self.blocks:
            h = b(h)
        return self.head(h)


def rearrange(samples, budget: int):
    """First-fit over the samples, longest first: a list of lists of samples."""
    groups, current, used = [], [], 0
    for sample in sorted(samples, key=len, reverse=True):
        length = len(sample)
        if used + length > budget and current:
            groups.append(current)
            current, used = [], 0
        current.append(sample)
        used += length
    groups.append(current)
    return groups


class ReplayBuffer:
    """Responses sampled by the local engine; their length drifts as the policy learns to stop."""

    def __init__(self, cfg: ActorConfig, rank: int):
        self.cfg = cfg
        self.rng = random.Random(1000 + rank)
        self.tool_calls = rank == 3

    def draw(self, update: int):
        longest = 10
        if self.tool_calls and update > 6:
            longest = 10 + update
        return [
            torch.tensor([self.rng.randrange(self.cfg.vocab) for _ in range(self.rng.randint(8, longest))])
            for _ in range(self.cfg.mini_batch)
        ]


class ActorWorker:
    def __init__(self, cfg: ActorConfig):
        self.cfg = cfg
        torch.manual_seed(3)
        self.actor = FSDP(Actor(cfg), auto_wrap_policy=ModuleWrapPolicy({Expert}), device_id=torch.device("cpu"), use_orig_params=True)
        self.opt = torch.optim.AdamW(self.actor.parameters(), lr=1e-3)
        self.buffer = ReplayBuffer(cfg, dist.get_rank())

    def plan(self, samples):
        return rearrange(samples, self.cfg.max_token_len)

    def update_policy(self, update: int):
        samples = self.buffer.draw(update)
        micros = self.plan(samples)
        total = sum(len(s) for s in samples)
        self.opt.zero_grad()
        for index, micro in enumerate(micros):
            ids = torch.cat(micro)[None]
            logp = self.actor(ids[:, :-1]).log_softmax(-1)
            picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
            loss = -(picked.clamp(min=-8.0)).sum() / total
            loss.backward()
        self.actor.clip_grad_norm_(1.0)
        self.opt.step()
        return len(micros), total

    def run(self):
        for update in range(self.cfg.updates):
            n, tokens = self.update_policy(update)
            log.info("rank %d update %d: %d micro batches, %d tokens", dist.get_rank(), update, n, tokens)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    ActorWorker(ActorConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
