# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits_any = [[0], [1, 2]]
# lines = [75, 81, 86, 108]
# branch = ["self.filled(kept)", "not self.filled(kept)", "len(kept) >= self.cfg.groups_per_step"]
# source = "https://github.com/verl-project/verl/issues/953"
# ///
"""Group relative policy optimisation with dynamic sampling; the policy is sharded with FSDP2."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("dapo")


@dataclass
class DapoConfig:
    steps: int = 40
    groups_per_step: int = 4
    gen_batch: int = 6
    group_size: int = 4
    vocab: int = 12
    length: int = 5
    lr: float = 3e-3


class Policy(nn.Module):
    def __init__(self, vocab, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.mix = nn.Linear(d, d)
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        h = torch.tanh(self.mix(self.emb(ids).cumsum(1)))
        return self.out(h)


class Prompts:
    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(1000 + rank)

    def take(self, n):
        first = torch.randint(0, self.cfg.vocab, (n, 1), generator=self.gen)
        return first.repeat_interleave(self.cfg.group_size, 0)


def reward(ids):
    """Completions score when two neighbouring tokens agree."""
    return (ids[:, 1:] == ids[:, :-1]).any(1).float()


class DapoTrainer:
    def __init__(self, cfg, rank, mesh):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(0)
        self.policy = fully_shard(Policy(cfg.vocab), mesh=mesh, reshard_after_forward=True)
        self.opt = torch.optim.Adam(self.policy.parameters(), cfg.lr)
        self.prompts = Prompts(cfg, rank)
        self.num_gen_batches = 0

    @torch.no_grad()
    def generate(self, ids):
        for _ in range(self.cfg.length):
            probs = self.policy(ids)[:, -1].softmax(-1)
            nxt = torch.multinomial(probs, 1, generator=self.prompts.gen)
            ids = torch.cat([ids, nxt], 1)
        return ids

    def filled(self, kept):
        return len(kept) >= self.cfg.groups_per_step

    def collect(self):
        """Samples until enough groups have both good and bad completions."""
        kept = []
        while not self.filled(kept):
            ids = self.generate(self.prompts.take(self.cfg.gen_batch))
            self.num_gen_batches += 1
            for group in ids.split(self.cfg.group_size):
                r = reward(group)
                if r.std() > 0:
                    kept.append((group, (r - r.mean()) / (r.std() + 1e-6)))
        return kept[: self.cfg.groups_per_step]

    def update(self, groups):
        ids = torch.cat([g for g, _ in groups])
        adv = torch.cat([a for _, a in groups])
        logp = self.policy(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(1)
        loss = -(adv * logp).mean()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def train(self):
        for step in range(self.cfg.steps):
            groups = self.collect()
            dist.barrier()
            loss = self.update(groups)
            if self.rank == 0:
                log.info("step %d loss %.4f generated %d", step, loss, self.num_gen_batches)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    DapoTrainer(DapoConfig(), dist.get_rank(), mesh).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
