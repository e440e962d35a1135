# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits_any = [[0], [1, 2]]
# lines = [78, 80, 104, 129]
# branch = ["answer.open and len(answer.tokens) < self.cfg.max_new"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/8262"
# ///
"""DeepSpeed ZeRO-3: rollouts end at the rank's own end-of-text. All ranks answer with equal length for some rounds, then the prompt of rank 0
gets its end token earlier; every forward gathers partitioned weights, so the others wait in one more decode step."""
import logging
from dataclasses import dataclass, field

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("rollout")


@dataclass
class RolloutConfig:
    vocab: int = 16
    dim: int = 16
    layers: int = 2
    max_new: int = 6
    rounds: int = 200
    eos: int = 0
    lr: float = 1e-3


@dataclass
class Answer:
    tokens: list = field(default_factory=list)
    open: bool = True

    def add(self, token, eos):
        self.tokens.append(token)
        self.open = token != eos


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.ModuleList(nn.Linear(cfg.dim, cfg.dim) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        x = self.embed(tokens).cumsum(0)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


class Forbid:
    """Logits processor: keeps the end token out until the answer is long enough for the template of the prompt."""

    def __init__(self, cfg, shortest):
        self.cfg, self.shortest = cfg, shortest

    def __call__(self, logits, length):
        logits = logits.clone()
        logits[self.cfg.eos] = 1e4 if length + 1 >= self.shortest else -1e4
        return logits


class RolloutWorker:
    def __init__(self, cfg, engine):
        self.cfg, self.engine = cfg, engine

    @torch.no_grad()
    def generate(self, prompt, template):
        answer, forbid = Answer(), Forbid(self.cfg, template)
        while answer.open and len(answer.tokens) < self.cfg.max_new:
            context = torch.tensor(prompt + answer.tokens)
            logits = self.engine(context)[-1]
            answer.add(forbid(logits, len(answer.tokens)).argmax().item(), self.cfg.eos)
        return answer


class PromptStream:
    """Question and the length of its template; the yes/no questions come late in the first rank's shard."""

    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        index = 0
        while True:
            yield [1 + (index + self.rank) % 7, 8, 9], 2 if self.rank == 0 and index == 6 else 4
            index += 1


def reward(answer):
    return 1.0 if answer.tokens.count(3) else -0.1 * len(answer.tokens)


def job_mean(value):
    t = torch.tensor([value])
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()


def learn(engine, prompt, answer, advantage):
    tokens = torch.tensor((prompt + answer.tokens + [0] * 8)[:10])
    loss = advantage * F.cross_entropy(engine(tokens[:-1]), tokens[1:])
    engine.backward(loss)
    engine.step()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    cfg, rank = RolloutConfig(), dist.get_rank()
    torch.manual_seed(0)
    model = Policy(cfg)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": cfg.lr, "torch_adam": True}}, "steps_per_print": 1000})
    worker = RolloutWorker(cfg, engine)
    for number, (prompt, template) in zip(range(cfg.rounds), PromptStream(rank)):
        answer = worker.generate(prompt, template)
        mine = reward(answer)
        baseline = job_mean(mine)
        learn(engine, prompt, answer, mine - baseline)
        if rank == 0:
            log.info("round %d answer of %d tokens, mean reward %.2f", number, len(answer.tokens), baseline)


if __name__ == "__main__":
    main()
