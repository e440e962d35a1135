# /// hangdoc
# launch = "python"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [0]
# lines = [80, 119, 124, 126, 127, 128]
# branch = ["micro in micros", "used + n > self.max_tokens", "used + n >"]
# source = "https://github.com/verl-project/verl/pull/5591"
# ///
"""Policy update of an RL fine-tuning run: roll-outs of different length are packed into micro-batches under a token budget."""
import logging
import os
import random
import tempfile
from dataclasses import dataclass, field

import torch
import torch._dynamo  # noqa: F401  (once, before the workers fork)
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

log = logging.getLogger("actor")
WORLD = 4


@dataclass
class Rollout:
    tokens: torch.Tensor
    advantage: float

    def __len__(self):
        return len(self.tokens)


@dataclass
class ActorConfig:
    max_tokens: int = 512
    prompts_per_rank: int = 12
    updates: int = 6
    lr: float = 1e-3
    lengths: dict = field(default_factory=lambda: {"math": (30, 60), "chat": (20, 44), "code": (70, 110)})


class RolloutStore:
    """Finished generations of one data-parallel worker; the task mix shifts in the course of the curriculum."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.rng = random.Random(900 + rank)

    def task(self, update):
        if update < 3:
            return "chat"
        return ("code", "math", "math", "math")[self.rank]

    def take(self, update):
        lo, hi = self.cfg.lengths[self.task(update)]
        out = []
        for _ in range(self.cfg.prompts_per_rank):
            n = self.rng.randint(lo, hi)
            tokens = torch.tensor([self.rng.randrange(120) for _ in range(n)])
            out.append(Rollout(tokens, self.rng.uniform(-1, 1)))
        return out


class TokenBudgetBatcher:
    def __init__(self, max_tokens, min_micros=2):
        self.max_tokens, self.min_micros = max_tokens, min_micros

    def split(self, rollouts):
        rollouts = sorted(rollouts, key=len, reverse=True)
        micros, current, used = [], [], 0
        for r in rollouts:
            n = len(r)
            if current and used + n > self.max_tokens:
                micros.append(current)
                current, used = [], 0
            current.append(r)
            used += n
        if current:
            micros.append(current)
        while len(micros) < self.min_micros:
            big = max(micros, key=len)
            half = len(big) // 2
            micros.append(big[half:])
            del big[half:]
        return micros


def pad(micro):
    width = max(map(len, micro))
    ids = torch.zeros(len(micro), width, dtype=torch.long)
    mask = torch.zeros(len(micro), width)
    for row, r in enumerate(micro):
        ids[row, :len(r)] = r.tokens
        mask[row, :len(r)] = 1
    return ids, mask, torch.tensor([r.advantage for r in micro])


class Actor:
    def __init__(self, cfg, mesh):
        self.cfg = cfg
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=128, n_embd=32, n_layer=2, n_head=2,
                                           use_cache=False, tie_word_embeddings=False))
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)
        self.batcher = TokenBudgetBatcher(cfg.max_tokens)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)

    def policy_loss(self, micro):
        ids, mask, advantage = pad(micro)
        logits = self.model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        logp = -F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return -(logp * mask[:, 1:] * advantage[:, None]).sum() / mask.sum()

    def update(self, rollouts):
        micros = self.batcher.split(rollouts)
        total = 0.0
        for micro in micros:
            loss = self.policy_loss(micro) / len(micros)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total, len(micros)


def worker(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(name)s %(message)s")
    cfg = ActorConfig()
    actor = Actor(cfg, init_device_mesh("cpu", (WORLD,)))
    store = RolloutStore(cfg, rank)
    for update in range(cfg.updates):
        loss, count = actor.update(store.take(update))
        stats = torch.tensor([loss, float(count)])
        dist.all_reduce(stats)
        log.info("update %d loss %.4f micro-batches %d", update, stats[0] / WORLD, int(stats[1]))
    dist.destroy_process_group()


def main():
    run_dir = tempfile.mkdtemp(prefix="actor-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(os.path.join(run_dir, "rendezvous"),), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
