# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201"]
# culprits = [0, 1, 2, 3]
# culprits_any = [[0], [1], [2], [3]]
# lines = [43, 48, 49, 56]
# source = "https://github.com/lucidrains/ring-attention-pytorch/pull/9"
# ///
"""Long-context training with ring attention: each rank keeps a slice of the sequence, key/value blocks travel around the ring."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("ring")


@dataclass
class RingConfig:
    width: int = 32
    vocab: int = 50
    curriculum: tuple = (8, 16, 32, 64)
    steps_per_length: int = 4
    eager_limit: int = 2048
    overlap: bool = True


class Ring:
    """Moves blocks to the right neighbour; short ones with requests in flight, long ones one after the other to bound memory."""

    def __init__(self, eager_limit, overlap):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.right = (self.rank + 1) % self.world
        self.left = (self.rank - 1) % self.world
        self.eager_limit, self.overlap = eager_limit, overlap

    def shift(self, block):
        incoming = torch.empty_like(block)
        if self.overlap and block.numel() <= self.eager_limit:
            work = [dist.isend(block, dst=self.right), dist.irecv(incoming, src=self.left)]
            for w in work:
                w.wait()
        else:
            dist.send(block, dst=self.right)
            dist.recv(incoming, src=self.left)
        return incoming

    def blocks(self, block):
        owner = self.rank
        yield owner, block
        for _ in range(self.world - 1):
            block = self.shift(block)
            owner = (owner - 1) % self.world
            yield owner, block


class RingAttention(nn.Module):
    def __init__(self, width, ring):
        super().__init__()
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.ring, self.scale = ring, width**-0.5

    def forward(self, x):
        q = self.query(x)
        own = self.key_value(x)
        numerator, denominator, peak = 0.0, 0.0, torch.full((len(x), 1), -1e9)
        for owner, kv in self.ring.blocks(own.detach()):
            if owner == self.ring.rank:
                kv = own
            if owner > self.ring.rank:
                continue
            k, v = kv.chunk(2, dim=-1)
            logits = q @ k.T * self.scale
            if owner == self.ring.rank:
                logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -1e9)
            new_peak = torch.maximum(peak, logits.amax(-1, keepdim=True).detach())
            weight, fade = (logits - new_peak).exp(), (peak - new_peak).exp()
            numerator = numerator * fade + weight @ v
            denominator = denominator * fade + weight.sum(-1, keepdim=True)
            peak = new_peak
        return numerator / denominator


class LongContextLM(nn.Module):
    def __init__(self, cfg, ring):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.attend = RingAttention(cfg.width, ring)
        self.out = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, ids):
        x = self.embed(ids)
        return self.out(x + self.attend(x))


def sequence_slice(cfg, length, step, rank, world):
    gen = torch.Generator().manual_seed(step)
    whole = torch.randint(0, cfg.vocab, (length * world + 1,), generator=gen)
    lo = rank * length
    return whole[lo : lo + length], whole[lo + 1 : lo + length + 1]


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.ring = Ring(cfg.eager_limit, cfg.overlap)
        torch.manual_seed(0)
        self.model = LongContextLM(cfg, self.ring)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def step(self, length, number):
        ids, labels = sequence_slice(self.cfg, length, number, self.ring.rank, self.ring.world)
        loss = nn.functional.cross_entropy(self.model(ids), labels)
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.ring.world
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def run(self):
        number = 0
        for length in self.cfg.curriculum:
            for _ in range(self.cfg.steps_per_length):
                loss = self.step(length, number)
                number += 1
            log.info("context %d loss %.3f", length * self.ring.world, loss)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Runner(RingConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
