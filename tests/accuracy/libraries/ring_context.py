# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [2]
# lines = [52, 67, 68, 90]
# branch = ["hop < self.hops(lengths)", "range(self.hops(lengths))", "self.hops(lengths)"]
# source = "own"
# ///
"""Context-parallel ring attention: keys and values go round. The number of hops comes from the longest document of the batch, which is
read from a file of each rank; one rank's copy of the index is older and has the long document trimmed."""
import json
import logging
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("ring")


@dataclass
class RingConfig:
    dim: int = 8
    chunk: int = 16
    batch: int = 2
    steps: int = 300
    lr: float = 0.01


class LengthIndex:
    """Length of every document, packed by the preparation job and copied to the scratch folder of each host."""

    def __init__(self, path):
        self.rows = json.loads(Path(path).read_text())

    def batch(self, step, size):
        return [self.rows[(step * size + i) % len(self.rows)] for i in range(size)]


class RingAttention(nn.Module):
    def __init__(self, cfg, rank, world):
        super().__init__()
        self.cfg, self.rank, self.world = cfg, rank, world
        self.q, self.k, self.v = (nn.Linear(cfg.dim, cfg.dim, bias=False) for _ in range(3))

    def hops(self, lengths):
        return min(self.world, math.ceil(max(lengths) / self.cfg.chunk)) - 1

    def rotate(self, block):
        incoming = torch.empty_like(block)
        ops = [dist.P2POp(dist.isend, block, (self.rank + 1) % self.world),
               dist.P2POp(dist.irecv, incoming, (self.rank - 1) % self.world)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return incoming

    def forward(self, x, lengths):
        query, kv = self.q(x), torch.stack([self.k(x), self.v(x)])
        scores = [query @ kv[0].transpose(-1, -2)]
        values = [kv[1]]
        block = kv.detach().contiguous()
        for hop in range(self.hops(lengths)):
            block = self.rotate(block)
            scores.append(query @ block[0].transpose(-1, -2))
            values.append(block[1])
        weights = (torch.cat(scores, -1) / math.sqrt(self.cfg.dim)).softmax(-1)
        return weights @ torch.cat(values, 1)


class Trainer:
    def __init__(self, cfg, index, rank, world):
        torch.manual_seed(2)
        self.cfg, self.index, self.rank, self.world = cfg, index, rank, world
        self.attention = RingAttention(cfg, rank, world)
        self.opt = torch.optim.SGD(self.attention.parameters(), lr=cfg.lr)

    def run(self):
        for step in range(self.cfg.steps):
            lengths = self.index.batch(step, self.cfg.batch)
            x = torch.randn(self.cfg.batch, self.cfg.chunk, self.cfg.dim)
            loss = (self.attention(x, lengths) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.attention.parameters():
                dist.all_reduce(p.grad)
            self.opt.step()
            if step % 2 == 0 and self.rank == 0:
                log.info("step %d loss %.3f longest %d", step, loss.item(), max(lengths))


def stage_index(rank):
    """Stands for the copy job of the hosts."""
    rows = [20, 30, 18, 44, 25, 31, 40, 28, 22, 17, 19, 30, 33, 45, 60, 21]
    if rank == 2:
        rows = [min(r, 48) for r in rows]
    path = Path(tempfile.mkdtemp(prefix="index-")) / "lengths.json"
    path.write_text(json.dumps(rows))
    return path


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    Trainer(RingConfig(), LengthIndex(stage_index(rank)), rank, world).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
