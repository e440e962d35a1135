# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD505", "HD702", "HD102", "HD202"]
# culprits = [0]
# culprits_any = [[2], [1, 2, 3], [0, 2]]
# lines = [44, 99, 100, 113, 114, 121, 141, 144]
# branch = ["len(groups) < self.cfg.groups_per_step", "max(rewards) - min(rewards)", "range(self.cfg.steps)"]
# source = "https://github.com/thinking-machines-lab/tinker-cookbook/pull/480"
# ///
"""Asynchronous policy optimisation: three rollout workers sample answer groups for their share of the prompts and post them to the learner through rpc."""
import logging
import os
import queue
import random
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc

log = logging.getLogger("arl")


@dataclass
class Config:
    prompts: int = 96
    groups_per_step: int = 8
    steps: int = 12
    group_size: int = 4
    spread_floor: float = 1e-6
    rpc_timeout: int = 1800


class TrajectoryBuffer:
    def __init__(self):
        self.items = queue.Queue()

    def add(self, worker, group):
        self.items.put((worker, group))

    def take(self):
        return self.items.get()


BUFFER = TrajectoryBuffer()
POLICY = torch.nn.Linear(6, 4)


def post_group(worker, group):
    BUFFER.add(worker, group)


def fetch_policy():
    return {k: v.clone() for k, v in POLICY.state_dict().items()}


class Verifier:
    """Scores sampled answers; arithmetic prompts have a checkable answer, open ones get the format score."""

    def __init__(self, rng):
        self.rng = rng

    def score(self, prompt, action):
        if prompt["kind"] == "open":
            return 0.5
        return float(action == prompt["answer"]) + 0.1 * self.rng.random()


class RolloutWorker:
    def __init__(self, cfg, index, workers):
        self.cfg, self.name = cfg, f"rollout{index}"
        self.rng = random.Random(index)
        self.verifier = Verifier(self.rng)
        torch.manual_seed(index)
        per = cfg.prompts // workers
        self.prompts = self.load_prompts()[(index - 1) * per: index * per]
        self.policy = torch.nn.Linear(6, 4)

    def load_prompts(self):
        rng = random.Random(9)
        kinds = ["math"] * 40 + ["open"] * 16 + ["math"] * 40
        return [{"kind": k, "answer": rng.randrange(4), "obs": [rng.random() for _ in range(6)]} for k in kinds]

    def sample_group(self, prompt):
        probs = torch.softmax(self.policy(torch.tensor(prompt["obs"])), -1)
        actions = torch.multinomial(probs, self.cfg.group_size, replacement=True).tolist()
        rewards = [self.verifier.score(prompt, a) for a in actions]
        return {"obs": prompt["obs"], "actions": actions, "rewards": rewards}

    def run(self):
        posted = 0
        for i, prompt in enumerate(self.prompts):
            if i % 8 == 0:
                self.policy.load_state_dict(rpc.rpc_sync("learner", fetch_policy))
            group = self.sample_group(prompt)
            rewards = group["rewards"]
            if max(rewards) - min(rewards) < self.cfg.spread_floor:
                continue
            rpc.rpc_sync("learner", post_group, args=(self.name, group))
            posted += 1
        log.info("%s posted %d of %d groups", self.name, posted, len(self.prompts))


class Learner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.lr = 0.05

    def gather(self):
        groups = []
        while len(groups) < self.cfg.groups_per_step:
            worker, group = BUFFER.take()
            groups.append(group)
        return groups

    def run(self):
        for step in range(self.cfg.steps):
            loss = 0.0
            for g in self.gather():
                r = torch.tensor(g["rewards"])
                adv = (r - r.mean()) / (r.std() + 1e-4)
                logp = torch.log_softmax(POLICY(torch.tensor(g["obs"])), -1)[g["actions"]]
                loss = loss - (adv * logp).mean()
            POLICY.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in POLICY.parameters():
                    p -= self.lr * p.grad
            log.info("step %d loss %.4f", step, loss.item())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {rank}: %(message)s")
    cfg = Config()
    opts = rpc.TensorPipeRpcBackendOptions(rpc_timeout=cfg.rpc_timeout)
    rpc.init_rpc("learner" if rank == 0 else f"rollout{rank}", rank=rank, world_size=world, rpc_backend_options=opts)
    if rank == 0:
        Learner(cfg).run()
    else:
        RolloutWorker(cfg, rank, world - 1).run()
    rpc.shutdown(timeout=cfg.rpc_timeout)


if __name__ == "__main__":
    main()
