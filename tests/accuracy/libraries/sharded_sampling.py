# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits_any = [[0], [1]]
# lines = [87, 69]
# branch = ["while not beam.finished", "not beam.finished", "beam.finished", "len(self.tokens) >= self.limit or self.tokens[-1] == EOS", "self.tokens[-1] == EOS"]
# source = "https://github.com/pytorch/pytorch/issues/100069"
# ///
"""Sample texts from a fully sharded character model between training phases."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("charlm")

VOCAB = 40
EOS = 7


@dataclass
class SampleConfig:
    steps: int = 60
    every: int = 30
    limit: int = 48
    prompts: tuple = ((1, 2, 3), (12, 19, 4), (9, 9, 30), (22, 5, 17))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, h):
        return self.norm(h + self.mix(h)[0])


class CharModel(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


class Beam:
    """One text in the making."""

    def __init__(self, prompt, limit):
        self.tokens = list(prompt)
        self.limit = limit

    @property
    def finished(self):
        return len(self.tokens) >= self.limit or self.tokens[-1] == EOS

    def push(self, token):
        self.tokens.append(int(token))


class Sampler:
    def __init__(self, model, cfg, seed):
        self.model = model
        self.cfg = cfg
        self.generator = torch.Generator().manual_seed(seed)

    def choose(self, logits):
        return torch.multinomial(logits.softmax(-1), 1, generator=self.generator)

    @torch.no_grad()
    def complete(self, prompt):
        beam = Beam(prompt, self.cfg.limit)
        while not beam.finished:
            logits = self.model(torch.tensor([beam.tokens]))[0, -1]
            beam.push(self.choose(logits))
        return beam.tokens

    def batch(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        return [self.complete(p) for p in self.cfg.prompts[rank::world]]


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def corpus(generator, rows=8, length=20):
    text = torch.randint(0, VOCAB, (rows, length + 1), generator=generator)
    return text[:, :-1], text[:, 1:]


def train(cfg):
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = shard(CharModel(), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    sampler = Sampler(model, cfg, seed=4 + dist.get_rank())
    for step in range(1, cfg.steps + 1):
        x, y = corpus(generator)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % cfg.every == 0:
            began = time.monotonic()
            texts = sampler.batch()
            log.info("step %d loss %.3f, %d texts in %.1fs", step, loss.item(), len(texts), time.monotonic() - began)
    return model


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    train(SampleConfig())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
