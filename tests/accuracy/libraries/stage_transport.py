# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [1]
# culprits_any = [[2], [1, 2]]
# lines = [41, 42, 44, 55, 57]
# branch = ["tuple(x.shape)!=self.sent_shape", "bucket!=self.bucket"]
# source = "https://github.com/tdrussell/diffusion-pipe/pull/544"
# ///
"""Four pipeline stages pass activations of varying length; a header with the new shape goes ahead when it changes."""
import logging
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pipe")
TAG_HEADER, TAG_DATA = 11, 12


@dataclass
class PipeConfig:
    width: int = 24
    multiple: int = 16
    packing_stage: int = 1
    buckets: tuple = (64, 48, 28, 32, 16)
    micro_batches_per_bucket: int = 3
    rows: int = 2


@dataclass
class Sender:
    peer: int
    sent_shape: tuple = ()
    count: int = 0

    def __call__(self, x):
        if tuple(x.shape) != self.sent_shape:
            dist.send(torch.tensor(x.shape, dtype=torch.int64), self.peer, tag=TAG_HEADER)
            self.sent_shape = tuple(x.shape)
        dist.send(x.contiguous(), self.peer, tag=TAG_DATA)
        self.count += 1


@dataclass
class Receiver:
    peer: int
    bucket: int = -1
    buffer: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def __call__(self, bucket):
        if bucket != self.bucket:
            header = torch.empty(3, dtype=torch.int64)
            dist.recv(header, self.peer, tag=TAG_HEADER)
            self.buffer = torch.empty(*header.tolist())
            self.bucket = bucket
        dist.recv(self.buffer, self.peer, tag=TAG_DATA)
        return self.buffer.clone()


class Stage:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.block = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.GELU())
        self.receiver = Receiver(rank - 1) if rank > 0 else None
        self.sender = Sender(rank + 1) if rank + 1 < world else None
        self.total = 0.0

    def pack(self, x):
        """Pads the sequence to the multiple that the attention kernels of the later stages like."""
        short = -x.shape[1] % self.cfg.multiple
        return nn.functional.pad(x, (0, 0, 0, short)) if short else x

    def run(self, bucket):
        x = self.receiver(bucket) if self.receiver else torch.randn(self.cfg.rows, bucket, self.cfg.width)
        with torch.no_grad():
            y = self.block(x)
        if self.rank == self.cfg.packing_stage:
            y = self.pack(y)
        if self.sender:
            self.sender(y)
        else:
            self.total += float(y.abs().mean())


def schedule(cfg):
    for bucket in cfg.buckets:
        for _ in range(cfg.micro_batches_per_bucket):
            yield bucket


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    cfg = PipeConfig()
    stage = Stage(cfg, dist.get_rank(), dist.get_world_size())
    for number, bucket in enumerate(schedule(cfg)):
        stage.run(bucket)
        log.info("stage %d finished micro-batch %d (bucket %d)", stage.rank, number, bucket)
    if stage.sender is None:
        log.info("mean activation %.4f", stage.total / (number + 1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
