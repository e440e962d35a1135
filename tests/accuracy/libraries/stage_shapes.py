# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD106"]
# culprits_any = [[2], [1], [1, 2]]
# lines = [43, 47, 50, 52, 106, 110, 113]
# branch = ["self.block.needs_reset", "self.peer_shape is None or (seq_len and self.peer_shape[1] != seq_len)", "self.peer_shape is None", "shape != self.announced"]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/5100"
# ///
"""Four-stage pipeline with variable sequence lengths: a shape header goes before the activations when it changes."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("pipe")
HEADER, PAYLOAD, LABELS = 100, 200, 300


@dataclass
class PipeConfig:
    hidden: int = 12
    micro_batches: int = 5
    rounds: int = 60
    eval_every: int = 7
    buckets: tuple = (8, 8, 8, 8, 16)


class Channel:
    """One direction between neighbouring stages. Both ends keep the last shape, so equal ones cost no header."""

    def __init__(self, peer):
        self.peer = peer
        self.announced = None
        self.peer_shape = None

    def send(self, x):
        shape = tuple(x.shape)
        if shape != self.announced:
            header = torch.tensor(shape, dtype=torch.int64)
            dist.send(header, self.peer, tag=HEADER)
            self.announced = shape
        dist.send(x.contiguous(), self.peer, tag=PAYLOAD + x.numel())

    def expect(self, seq_len=None):
        if self.peer_shape is None or (seq_len and self.peer_shape[1] != seq_len):
            header = torch.zeros(3, dtype=torch.int64)
            dist.recv(header, self.peer, tag=HEADER)
            self.peer_shape = tuple(header.tolist())
        return self.peer_shape

    def recv(self, seq_len=None):
        x = torch.empty(self.expect(seq_len))
        dist.recv(x, self.peer, tag=PAYLOAD + x.numel())
        return x

    def forget(self):
        self.announced = None
        self.peer_shape = None


class Block(nn.Module):
    needs_reset = False

    def __init__(self, hidden):
        super().__init__()
        self.up = nn.Linear(hidden, 2 * hidden)
        self.down = nn.Linear(2 * hidden, hidden)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class RecurrentBlock(Block):
    """Keeps a state between micro-batches, which has to be dropped after an evaluation."""

    needs_reset = True

    def __init__(self, hidden):
        super().__init__(hidden)
        self.state = None

    def forward(self, x):
        out = super().forward(x)
        self.state = out.detach().mean(dim=1)
        return out


class Stage:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.block = (RecurrentBlock if rank == 2 else Block)(cfg.hidden)
        self.upstream = Channel(rank - 1) if rank else None
        self.downstream = Channel(rank + 1) if rank + 1 < world else None
        self.schedule = random.Random(5)

    def micro_batch(self, seq_len):
        x = torch.randn(2, seq_len, self.cfg.hidden) if self.upstream is None else self.upstream.recv(seq_len)
        with torch.no_grad():
            y = self.block(x)
        if self.downstream is not None:
            self.downstream.send(y)
        return y.square().mean()

    def reset(self):
        if self.block.needs_reset:
            self.block.state = None
            for channel in filter(None, (self.upstream, self.downstream)):
                channel.forget()

    def run(self):
        for r in range(self.cfg.rounds):
            seq_len = self.schedule.choice(self.cfg.buckets)
            losses = [self.micro_batch(seq_len) for _ in range(self.cfg.micro_batches)]
            if r % self.cfg.eval_every == self.cfg.eval_every - 1:
                self.evaluate(r, losses)

    def evaluate(self, r, losses):
        score = torch.stack(losses).mean().reshape(1)
        dist.broadcast(score, src=self.world - 1)
        if self.rank == 0:
            log.info("round %d score %.4f", r, score.item())
        self.reset()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    Stage(PipeConfig(), dist.get_rank(), dist.get_world_size()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
