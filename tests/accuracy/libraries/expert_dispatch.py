# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits_any = [[1]]
# lines = [61, 62, 66, 119]
# branch = ["tokens.size(0) == 0"]
# source = "https://github.com/PaddlePaddle/PaddleFormers/pull/3010"
# ///
"""Expert-parallel layer: tokens travel to the expert's rank and back with all_to_all.
A rank whose batch is padding only (the tail of its shard) returns from the layer at once and is a collective ahead of the others."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("moe")


@dataclass
class MoEConfig:
    hidden: int = 16
    seq: int = 10
    batch: int = 3
    layers: int = 2
    steps: int = 8
    pad: int = 0


class Exchange:
    """Counts first, then the rows themselves."""

    def __init__(self, world: int):
        self.world = world

    def counts(self, send: torch.Tensor) -> torch.Tensor:
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        return recv

    def rows(self, rows, send, recv):
        out = rows.new_empty(int(recv.sum()), rows.size(1))
        dist.all_to_all_single(out, rows.contiguous(), recv.tolist(), send.tolist())
        return out


class ExpertParallelMLP(nn.Module):
    def __init__(self, cfg: MoEConfig, world: int):
        super().__init__()
        self.router = nn.Linear(cfg.hidden, world)
        self.expert = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.GELU())
        self.exchange, self.world = Exchange(world), world

    @torch.no_grad()
    def forward(self, hidden, mask):
        keep = mask.bool()
        tokens = hidden[keep]
        if tokens.size(0) == 0:
            return hidden
        owner = self.router(tokens).argmax(-1)
        order = owner.argsort(stable=True)
        send = torch.bincount(owner, minlength=self.world)
        recv = self.exchange.counts(send)
        arrived = self.exchange.rows(tokens[order], send, recv)
        back = self.exchange.rows(self.expert(arrived), recv, send)
        restored = torch.empty_like(tokens)
        restored[order] = back
        out = hidden.clone()
        out[keep] = hidden[keep] + restored
        return out


class PackedShard:
    """Fixed-size batches; what is missing at the end of a shard is filled with padding."""

    def __init__(self, cfg: MoEConfig, rank: int):
        self.cfg = cfg
        rows = cfg.steps * cfg.batch - (5 if rank == 1 else 1)
        g = torch.Generator().manual_seed(rank)
        self.ids = torch.randint(1, 50, (rows, cfg.seq), generator=g)

    def __iter__(self):
        for step in range(self.cfg.steps):
            part = self.ids[step * self.cfg.batch:(step + 1) * self.cfg.batch]
            full = torch.full((self.cfg.batch, self.cfg.seq), self.cfg.pad)
            full[:len(part)] = part
            yield full, (full != self.cfg.pad).long()


class Model(nn.Module):
    def __init__(self, cfg: MoEConfig, world: int):
        super().__init__()
        self.embed = nn.Embedding(50, cfg.hidden)
        self.layers = nn.ModuleList(ExpertParallelMLP(cfg, world) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.hidden, 50)

    def forward(self, ids, mask):
        h = self.embed(ids).detach()
        for layer in self.layers:
            h = layer(h, mask)
        return self.head(h)


def train(cfg: MoEConfig):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = Model(cfg, world)
    opt = torch.optim.SGD(model.head.parameters(), lr=0.05)
    for step, (ids, mask) in enumerate(PackedShard(cfg, rank)):
        logits = model(ids, mask)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten(), ignore_index=cfg.pad, reduction="sum")
        loss = loss / mask.sum().clamp(min=1)
        opt.zero_grad()
        loss.backward()
        for p in model.head.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        if rank == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    train(MoEConfig(steps=9))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
