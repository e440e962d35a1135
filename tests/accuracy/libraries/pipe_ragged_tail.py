# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD201", "HD202"]
# culprits = [0]
# culprits_any = [[1], [0, 1]]
# lines = [57, 61, 74, 75, 82, 83, 124, 127]
# source = "https://github.com/hpcaitech/ColossalAI/pull/2156"
# ///
"""One-forward-one-backward pipeline with a hand-written communicator: three stages, micro-batches cut from batches of any length."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("1f1b")


@dataclass
class PipeConfig:
    width: int = 20
    micro: int = 4
    lr: float = 0.02
    batches: tuple = (24, 16, 22, 24)


class Channel:
    """Messages to the neighbouring stages. Full micro-batches are exchanged in one go in both directions."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.world - 1

    def empty(self, rows):
        return torch.empty(rows, self.cfg.width)

    def receive_forward(self, rows):
        if self.first:
            return None
        buffer = self.empty(rows)
        dist.recv(buffer, src=self.rank - 1)
        return buffer

    def receive_backward(self, rows):
        if self.last:
            return None
        buffer = self.empty(rows)
        dist.recv(buffer, src=self.rank + 1)
        return buffer

    def send_forward(self, out):
        if not self.last:
            dist.send(out.detach(), dst=self.rank + 1)

    def send_backward(self, grad):
        if not self.first:
            dist.send(grad, dst=self.rank - 1)

    def swap(self, outgoing, rows, peer):
        buffer = self.empty(rows)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing.detach(), peer),
                                        dist.P2POp(dist.irecv, buffer, peer)])
        for work in works:
            work.wait()
        return buffer

    def send_forward_receive_backward(self, out, rows):
        if self.last:
            return None
        if len(out) != rows or rows < self.cfg.micro:
            self.send_forward(out)
            return self.receive_backward(rows)
        return self.swap(out, rows, self.rank + 1)

    def send_backward_receive_forward(self, grad, rows):
        if self.first:
            return None
        if len(grad) != rows or rows < self.cfg.micro:
            self.send_backward(grad)
            return self.receive_forward(rows)
        return self.swap(grad, rows, self.rank - 1)


class Stage:
    def __init__(self, cfg, channel):
        torch.manual_seed(channel.rank)
        self.cfg, self.channel = cfg, channel
        self.module = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.Tanh())
        self.pending = []
        self.losses = []

    def forward(self, received, source):
        x = source if self.channel.first else received.requires_grad_()
        out = self.module(x)
        self.pending.append((x, out))
        return out

    def backward(self, grad):
        x, out = self.pending.pop(0)
        if self.channel.last:
            loss = out.pow(2).mean()
            self.losses.append(loss.item())
            loss.backward()
        else:
            out.backward(grad)
        return None if self.channel.first else x.grad

    def train_batch(self, batch):
        sources = list(batch.split(self.cfg.micro))
        rows = [len(s) for s in sources]
        warmup = min(self.channel.world - self.channel.rank - 1, len(rows))
        steady = len(rows) - warmup
        for k in range(warmup):
            out = self.forward(self.channel.receive_forward(rows[k]), sources[k])
            self.channel.send_forward(out)
        received = self.channel.receive_forward(rows[warmup]) if steady else None
        for i in range(steady):
            k = i + warmup
            out = self.forward(received, sources[k])
            grad = self.channel.send_forward_receive_backward(out, rows[i])
            upstream = self.backward(grad)
            if k + 1 < len(rows):
                received = self.channel.send_backward_receive_forward(upstream, rows[k + 1])
            else:
                self.channel.send_backward(upstream)
        for i in range(steady, len(rows)):
            self.channel.send_backward(self.backward(self.channel.receive_backward(rows[i])))
        with torch.no_grad():
            for p in self.module.parameters():
                p -= self.cfg.lr * p.grad
                p.grad = None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    cfg = PipeConfig()
    stage = Stage(cfg, Channel(cfg))
    gen = torch.Generator().manual_seed(4)
    for number, size in enumerate(cfg.batches):
        stage.train_batch(torch.randn(size, cfg.width, generator=gen))
        dist.barrier()
        if stage.losses:
            log.info("batch %d of %d rows, loss %.4f", number, size, stage.losses[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
