# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD109", "HD102", "HD101"]
# culprits = [1]
# lines = [96, 102, 97, 109, 104]
# branch = ["done.all()"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/8262"
# ///
"""On-policy distillation with DeepSpeed ZeRO-3: the student rolls out answers to its own prompts, the teacher scores them, the student learns."""
import logging
import os
from dataclasses import dataclass

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("opsd")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False   # no compiler on the CPU nodes

DS_CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "steps_per_print": 1000,
}


@dataclass
class Config:
    vocab: int = 48
    dim: int = 16
    eos: int = 0
    max_new: int = 14
    rounds: int = 5


TASKS = {"summary": 14, "classify": 3, "rewrite": 14}     # answer budget in tokens


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.mix = nn.Linear(cfg.dim, cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        x = self.emb(ids)
        steps = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[None, :, None]
        return self.head(torch.tanh(self.mix(x.cumsum(1) / steps)))


class BudgetProcessor:
    """Forces the end-of-sequence token once a prompt's answer budget is used up, and forbids it before."""

    def __init__(self, eos, budgets):
        self.eos, self.budgets = eos, budgets

    def __call__(self, position, logits):
        over = (position + 1 >= self.budgets)[:, None]
        logits = logits.clone()
        logits[:, self.eos] = float("-inf")
        forced = torch.full_like(logits, float("-inf"))
        forced[:, self.eos] = 0.0
        return torch.where(over, forced, logits)


class PromptPool:
    def __init__(self, task, cfg, seed):
        self.task, self.cfg = task, cfg
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, n=2):
        prompts = torch.randint(1, self.cfg.vocab, (n, 6), generator=self.gen)
        return prompts, torch.full((n,), TASKS[self.task])


class Distiller:
    def __init__(self, cfg, pool):
        self.cfg, self.pool = cfg, pool
        torch.manual_seed(0)
        student = TinyLM(cfg)
        self.engine, *_ = deepspeed.initialize(model=student, model_parameters=student.parameters(), config=DS_CONFIG)

    @torch.no_grad()
    def rollout(self):
        ids, budgets = self.pool.draw()
        shape = BudgetProcessor(self.cfg.eos, budgets)
        done = torch.zeros(len(ids), dtype=torch.bool)
        for position in range(self.cfg.max_new):
            logits = self.engine(ids)[:, -1]
            token = shape(position, logits.float()).argmax(-1)
            token = torch.where(done, torch.full_like(token, self.cfg.eos), token)
            ids = torch.cat([ids, token[:, None]], 1)
            done |= token == self.cfg.eos
            if done.all():
                break
        return self.pad(ids)

    def pad(self, ids):
        """To the common width, so that the padded batches are alike on every rank."""
        width = torch.tensor([ids.shape[1]])
        dist.all_reduce(width, op=dist.ReduceOp.MAX)
        return nn.functional.pad(ids, (0, int(width) - ids.shape[1]), value=self.cfg.eos)

    def distill_loss(self, ids, target):
        student = self.engine(ids).log_softmax(-1)
        return nn.functional.kl_div(student, target.log_softmax(-1), reduction="batchmean", log_target=True)

    def round(self, teacher):
        ids = self.rollout()
        loss = self.distill_loss(ids, teacher(ids))
        self.engine.backward(loss)
        self.engine.step()
        return ids.shape[1], loss.item()


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.WARNING, format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO)
    cfg = Config()
    torch.manual_seed(99)
    teacher = TinyLM(cfg).requires_grad_(False)
    job = Distiller(cfg, PromptPool(list(TASKS)[rank % len(TASKS)], cfg, seed=rank))
    for r in range(cfg.rounds):
        length, loss = job.round(teacher)
        log.info("round %d: %d tokens, loss %.3f", r, length, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
