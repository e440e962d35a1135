# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [69, 67, 118]
# branch = ["mine.any()"]
# source = "https://github.com/pytorch/pytorch/issues/126616"
# ///
"""Pretrains a tiny hash-routed mixture-of-experts language model with FSDP2, one FSDP unit per expert; every rank reads another corpus."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("moe")


@dataclass
class MoEConfig:
    vocab: int = 96
    dim: int = 24
    hidden: int = 48
    experts: int = 4
    layers: int = 2
    seq: int = 20
    batch: int = 4
    steps: int = 12


CORPORA = {
    "web": range(0, 96),
    "code": [t for t in range(96) if t % 4 != 2],   # byte-level vocabulary, printable subset
    "books": range(0, 80),
}


class Expert(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.up = nn.Linear(cfg.dim, cfg.hidden)
        self.down = nn.Linear(cfg.hidden, cfg.dim)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x)))


class HashMoE(nn.Module):
    """Token-id hash routing: no router parameters, no auxiliary loss."""

    def __init__(self, cfg):
        super().__init__()
        self.n = cfg.experts
        self.experts = nn.ModuleList(Expert(cfg) for _ in range(cfg.experts))

    def forward(self, x, tokens):
        flat, ids = x.reshape(-1, x.shape[-1]), tokens.reshape(-1) % self.n
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            mine = ids == e
            if not mine.any():
                continue
            out[mine] = expert(flat[mine])
        return x + out.view_as(x)


class MoELM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(HashMoE(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x, tokens)
        return self.head(x)


class CorpusReader:
    def __init__(self, name, cfg, seed):
        self.alphabet = torch.tensor(list(CORPORA[name]))
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)

    def next(self):
        pick = torch.randint(len(self.alphabet), (self.cfg.batch, self.cfg.seq + 1), generator=self.gen)
        seq = self.alphabet[pick]
        return seq[:, :-1], seq[:, 1:]


def shard(model, mesh):
    for block in model.blocks:
        for expert in block.experts:
            fully_shard(expert, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(cfg, rank, world):
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(7)
    model = shard(MoELM(cfg), mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    reader = CorpusReader(list(CORPORA)[rank % len(CORPORA)], cfg, seed=rank)
    for step in range(cfg.steps):
        tokens, targets = reader.next()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d loss %.3f", step, loss.item())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    dist.init_process_group("gloo")
    train(MoEConfig(), rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
