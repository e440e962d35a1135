# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD201", "HD202", "HD107", "HD106"]
# culprits = [4]
# culprits_any = [[0], [0, 4]]
# lines = [48, 49, 50, 59, 83]
# branch = ["self.ring_rank % 2"]
# source = "https://github.com/ByteDance-Seed/VeOmni/pull/1085"
# ///
"""Long-context attention: the sequence is split over a ring of ranks, key/value blocks travel round it over two groups so that both directions overlap."""
import logging
import math
import os
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("lctx")


@dataclass
class RunConfig:
    tokens: int = 640
    heads: int = 2
    head_dim: int = 16
    steps: int = 4
    timeout_min: int = 20
    ring_ranks: list = field(default_factory=list)


class RingChannel:
    """Moves one key/value block to the next neighbour while taking one from the previous."""

    def __init__(self, ranks, forward_group, overlap_group):
        self.ranks = ranks
        self.ring_rank = ranks.index(dist.get_rank())
        self.next = ranks[(self.ring_rank + 1) % len(ranks)]
        self.prev = ranks[(self.ring_rank - 1) % len(ranks)]
        self.forward_group = forward_group
        self.overlap_group = overlap_group

    def exchange(self, block):
        incoming = torch.empty_like(block)
        if self.ring_rank % 2 == 0:
            sending = dist.isend(block, self.next, group=self.forward_group)
            receiving = dist.irecv(incoming, self.prev, group=self.overlap_group)
        else:
            receiving = dist.irecv(incoming, self.prev, group=self.forward_group)
            sending = dist.isend(block, self.next, group=self.overlap_group)
        return incoming, (receiving, sending)

    @staticmethod
    def settle(handles):
        for work in handles:
            work.wait()


class RingAttention(torch.nn.Module):
    def __init__(self, cfg, channel):
        super().__init__()
        dim = cfg.heads * cfg.head_dim
        self.cfg, self.channel = cfg, channel
        self.qkv = torch.nn.Linear(dim, 3 * dim)
        self.out = torch.nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        block = torch.stack([k, v]).detach().contiguous()
        numer = torch.zeros_like(q)
        denom = torch.zeros(q.shape[0], 1)
        for hop in range(len(self.channel.ranks)):
            handles = None
            if hop + 1 < len(self.channel.ranks):
                incoming, handles = self.channel.exchange(block)
            weight = torch.exp(torch.clamp(q @ block[0].T / math.sqrt(q.shape[-1]), max=20.0))
            numer = numer + weight @ block[1]
            denom = denom + weight.sum(-1, keepdim=True)
            if handles is not None:
                self.channel.settle(handles)
                block = incoming
        return self.out(numer / denom)


class LongContextJob:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        cfg.ring_ranks = list(range(self.world))
        forward = dist.new_group(cfg.ring_ranks)
        overlap = dist.new_group(cfg.ring_ranks)
        torch.manual_seed(11)
        self.layer = RingAttention(cfg, RingChannel(cfg.ring_ranks, forward, overlap))

    def local_slice(self, step):
        gen = torch.Generator().manual_seed(step)
        full = torch.randn(self.cfg.tokens, self.cfg.heads * self.cfg.head_dim, generator=gen)
        return full.chunk(self.world)[self.rank]

    def train(self):
        for step in range(self.cfg.steps):
            out = self.layer(self.local_slice(step))
            loss = out.pow(2).mean()
            self.layer.zero_grad()
            loss.backward()
            for p in self.layer.parameters():
                dist.all_reduce(p.grad)
                p.data.sub_(p.grad, alpha=1e-2)
            if self.rank == 0:
                log.info("step %d loss %.4f", step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{os.environ['RANK']} %(message)s")
    cfg = RunConfig()
    dist.init_process_group("gloo", timeout=timedelta(minutes=cfg.timeout_min))
    log.info("ring of %d ranks, %d tokens each", dist.get_world_size(), cfg.tokens // dist.get_world_size())
    LongContextJob(cfg).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
