# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# lines = [54, 76, 78, 79, 96, 97, 99, 135]
# branch = ["expert_grads", "p.grad is not None", "len(rows)"]
# source = "https://github.com/deepspeedai/DeepSpeed/pull/8478"
# ///
"""Pre-training of a mixture-of-experts language model with expert parallelism and a global gradient norm."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("moe")


@dataclass
class MoEConfig:
    vocab: int = 97
    width: int = 32
    experts_per_rank: int = 1
    tokens: int = 6
    steps: int = 400
    clip: float = 1.0
    temperature: float = 0.35


class ExpertFFN(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Dispatcher:
    """Moves rows of tokens to the ranks that own their experts (no gradient flows through the exchange)."""

    def __init__(self, group):
        self.group = group
        self.size = dist.get_world_size(group)

    def exchange(self, rows, owner):
        order = torch.argsort(owner, stable=True)
        counts = torch.bincount(owner, minlength=self.size)
        table = [torch.zeros_like(counts) for _ in range(self.size)]
        dist.all_gather(table, counts, group=self.group)
        me = dist.get_rank(self.group)
        incoming = [int(t[me]) for t in table]
        out = rows.new_empty(sum(incoming), rows.shape[1])
        dist.all_to_all_single(out, rows[order].contiguous(), incoming, counts.tolist(), group=self.group)
        return out


class MoELanguageModel(nn.Module):
    def __init__(self, cfg, group):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.router = nn.Linear(cfg.width, dist.get_world_size(group), bias=False)
        self.expert = ExpertFFN(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab)
        self.dispatch = Dispatcher(group)
        self.temperature = cfg.temperature

    def forward(self, tokens):
        x = self.embed(tokens)
        gate = F.softmax(self.router(x) / self.temperature, dim=-1)
        weight, owner = gate.max(-1)
        rows = self.dispatch.exchange(x.detach(), owner)
        lm = F.cross_entropy(self.head(x[:-1] * (1 + weight[:-1, None])), tokens[1:])
        if not len(rows):
            return lm, 0
        return lm + 0.1 * (self.expert(rows) - rows).pow(2).mean(), len(rows)


class GradClipper:
    """Norm over dense parameters (replicated) and expert parameters (one copy per rank)."""

    def __init__(self, model, max_norm, expert_group):
        self.experts = list(model.expert.parameters())
        ids = {id(p) for p in self.experts}
        self.dense = [p for p in model.parameters() if id(p) not in ids]
        self.max_norm, self.expert_group = max_norm, expert_group

    def clip_(self):
        total = torch.stack([p.grad.norm() for p in self.dense if p.grad is not None]).pow(2).sum()
        dist.all_reduce(total)
        total /= dist.get_world_size()
        expert_grads = [p.grad for p in self.experts if p.grad is not None]
        if expert_grads:
            local = torch.stack([g.norm() for g in expert_grads]).pow(2).sum()
            dist.all_reduce(local, group=self.expert_group)
            total = total + local
        norm = total.sqrt()
        scale = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        for p in self.dense + self.experts:
            if p.grad is not None:
                p.grad.mul_(scale)
        return norm


class Pretrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.expert_group = dist.new_group(list(range(dist.get_world_size())))
        torch.manual_seed(5)
        self.model = MoELanguageModel(cfg, self.expert_group)
        self.clipper = GradClipper(self.model, cfg.clip, self.expert_group)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1.2)

    def batches(self):
        gen = torch.Generator().manual_seed(100 + dist.get_rank())
        for _ in range(self.cfg.steps):
            yield torch.randint(0, self.cfg.vocab, (self.cfg.tokens,), generator=gen)

    def average_dense(self):
        flat = torch.cat([p.grad.flatten() for p in self.clipper.dense])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(self.clipper.dense, flat.split([p.numel() for p in self.clipper.dense])):
            p.grad.copy_(g.view_as(p))

    def run(self):
        for step, tokens in enumerate(self.batches()):
            loss, load = self.model(tokens)
            loss.backward()
            self.average_dense()
            norm = self.clipper.clip_()
            self.opt.step()
            self.opt.zero_grad(set_to_none=True)
            log.info("step %d loss %.3f norm %.3f expert rows %d", step, loss.item(), norm.item(), load)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Pretrainer(MoEConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
