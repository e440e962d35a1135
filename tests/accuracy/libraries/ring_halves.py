# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD202", "HD201"]
# culprits_any = [[3, 4, 5]]
# lines = [28, 29, 38, 39, 44, 59, 62, 73, 74]
# source = "https://github.com/NVIDIA/nccl/issues/2130"
# ///
"""Ring attention in two rings of three. The neighbours are computed inside the ring (0, 1, 2) and used as global ranks, which is right for
the first ring only: ranks 3 to 5 exchange with ranks 0 to 2."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class RingConfig:
    ring: int = 3
    heads: int = 2
    length: int = 4
    dim: int = 8


class Neighbours:
    def __init__(self, cfg, rank):
        self.index = rank % cfg.ring
        self.next = (self.index + 1) % cfg.ring
        self.previous = (self.index - 1) % cfg.ring


class RingExchange:
    def __init__(self, neighbours):
        self.to, self.back, self.pending = neighbours.next, neighbours.previous, []

    def start(self, block):
        incoming = torch.empty_like(block)
        ops = [dist.P2POp(dist.isend, block, self.to), dist.P2POp(dist.irecv, incoming, self.back)]
        self.pending = dist.batch_isend_irecv(ops)
        return incoming

    def finish(self):
        for work in self.pending:
            work.wait()
        self.pending = []


class RingAttention:
    def __init__(self, cfg, exchange):
        self.cfg, self.exchange = cfg, exchange

    def scores(self, q, k):
        return (q @ k.transpose(-1, -2) / self.cfg.dim ** 0.5).softmax(-1)

    def __call__(self, q, k, v):
        out = torch.zeros_like(q)
        for hop in range(self.cfg.ring):
            if hop + 1 < self.cfg.ring:
                waiting = self.exchange.start(torch.stack([k, v]))
            out = out + self.scores(q, k) @ v
            if hop + 1 < self.cfg.ring:
                self.exchange.finish()
                k, v = waiting
        return out


def main():
    dist.init_process_group("gloo")
    cfg, rank = RingConfig(), dist.get_rank()
    attention = RingAttention(cfg, RingExchange(Neighbours(cfg, rank)))
    q, k, v = torch.randn(3, cfg.heads, cfg.length, cfg.dim).unbind(0)
    for _ in range(4):
        out = attention(q, k, v)
        dist.all_reduce(out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
