# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD103", "HD508", "HD507"]
# culprits = [2]
# lines = [63, 64, 82, 84, 94, 125]
# branch = ["len(parts) != 2"]
# source = "https://github.com/OpenPipe/ART/pull/429"
# ///
"""Policy training with an asyncio rollout pool in every rank. A malformed answer raises inside a worker task on rank 2 before
task_done(); the task is dead, nobody looks at it, and `await queue.join()` never returns while the others average gradients."""
import asyncio
import logging
import random
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("rollout")


@dataclass
class RolloutConfig:
    prompts: int = 6
    workers: int = 3
    iterations: int = 12
    vocab: int = 10
    width: int = 16
    latency: float = 0.03
    lr: float = 0.05


@dataclass
class Trajectory:
    prompt: int
    tokens: list
    reward: float = 0.0
    meta: dict = field(default_factory=dict)


class Sandbox:
    """Stands for the judge behind HTTP: it answers 'verdict;score'."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.calls = cfg, rank, 0
        self.rng = random.Random(rank)

    async def judge(self, tokens):
        await asyncio.sleep(self.cfg.latency * (0.5 + self.rng.random()))
        self.calls += 1
        score = sum(tokens) % 7 / 7
        if self.rank == 2 and self.calls == 27:
            return "<html><title>502 Bad Gateway</title></html>"
        return f"{'pass' if score > 0.5 else 'fail'};{score:.3f}"


def parse_verdict(answer):
    parts = answer.split(";")
    if len(parts) != 2:
        raise ValueError(f"unexpected answer of the judge: {answer[:40]!r}")
    return parts[0], float(parts[1])


class RolloutPool:
    def __init__(self, cfg, policy, sandbox):
        self.cfg, self.policy, self.sandbox = cfg, policy, sandbox
        self.queue, self.done, self.tasks = None, [], []

    @torch.no_grad()
    def sample(self, prompt):
        logits = self.policy(torch.tensor([prompt]))
        return torch.multinomial(logits.softmax(-1)[0], 4, replacement=True).tolist()

    async def worker(self):
        while True:
            prompt = await self.queue.get()
            tokens = self.sample(prompt)
            verdict, score = parse_verdict(await self.sandbox.judge(tokens))
            self.done.append(Trajectory(prompt, tokens, score, {"verdict": verdict}))
            self.queue.task_done()

    async def start(self):
        self.queue = asyncio.Queue()
        self.tasks = [asyncio.create_task(self.worker()) for _ in range(self.cfg.workers)]

    async def collect(self, prompts):
        self.done = []
        for p in prompts:
            self.queue.put_nowait(p)
        await self.queue.join()
        return self.done

    def stop(self):
        for t in self.tasks:
            t.cancel()


def reinforce(policy, optim, batch, world):
    rewards = torch.tensor([t.reward for t in batch])
    advantage = rewards - rewards.mean()
    logp = policy(torch.tensor([t.prompt for t in batch])).log_softmax(-1)
    chosen = torch.stack([logp[i, t.tokens].sum() for i, t in enumerate(batch)])
    optim.zero_grad()
    loss = -(advantage * chosen).mean()
    loss.backward()
    for p in policy.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optim.step()
    return rewards.mean().item()


async def train(cfg, rank, world):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Embedding(cfg.vocab, cfg.width), nn.Linear(cfg.width, cfg.vocab))
    optim = torch.optim.Adam(policy.parameters(), cfg.lr)
    pool = RolloutPool(cfg, policy, Sandbox(cfg, rank))
    rng = random.Random(50 + rank)
    await pool.start()
    for it in range(cfg.iterations):
        batch = await pool.collect([rng.randrange(cfg.vocab) for _ in range(cfg.prompts)])
        reward = reinforce(policy, optim, batch, world)
        if rank == 0:
            log.info("iteration %d reward %.3f", it, reward)
    pool.stop()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    asyncio.run(train(RolloutConfig(), dist.get_rank(), dist.get_world_size()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
