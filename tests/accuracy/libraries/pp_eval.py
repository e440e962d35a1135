# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [0]
# culprits_any = [[1], [1, 2], [0, 3]]
# lines = [86, 91, 95, 100, 103, 112]
# branch = ["self.holds_data", "n_microbatches"]
# source = "https://github.com/pytorch/torchtitan/issues/775"
# ///
"""Pipeline-parallel language model (torch.distributed.pipelining): trains on full batches, then evaluates on a held-out set whose length is no multiple of the batch size."""
import logging
import math
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

log = logging.getLogger("pp")


@dataclass
class PPConfig:
    vocab: int = 64
    width: int = 32
    seq: int = 12
    batch: int = 32
    micro: int = 4
    heldout: int = 88


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def build_part(cfg, index, count):
    torch.manual_seed(40 + index)
    layers = [Block(cfg.width), Block(cfg.width)]
    if index == 0:
        layers.insert(0, nn.Embedding(cfg.vocab, cfg.width))
    if index == count - 1:
        layers.append(nn.Linear(cfg.width, cfg.vocab))
    return nn.Sequential(*layers)


class HeldOutSet:
    """Only the first stage reads tokens and only the last one reads targets."""

    def __init__(self, cfg):
        gen = torch.Generator().manual_seed(5)
        self.tokens = torch.randint(cfg.vocab, (cfg.heldout, cfg.seq + 1), generator=gen)
        self.batch = cfg.batch

    def __len__(self):
        return math.ceil(len(self.tokens) / self.batch)

    def inputs(self, i):
        return self.tokens[i * self.batch:(i + 1) * self.batch, :-1]

    def targets(self, i):
        return self.tokens[i * self.batch:(i + 1) * self.batch, 1:]


class PipelineRunner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.part = build_part(cfg, self.rank, self.world)
        self.first, self.last = self.rank == 0, self.rank == self.world - 1
        self.holds_data = self.first or self.last
        self.losses = []

    def schedule(self, rows):
        """A fresh stage for each batch shape; microbatches have a fixed size."""
        stage = PipelineStage(self.part, self.rank, self.world, torch.device("cpu"))
        return ScheduleGPipe(stage, n_microbatches=math.ceil(rows / self.cfg.micro))

    def evaluate(self, data):
        self.part.eval()
        for i in range(len(data)):
            rows = len(data.inputs(i)) if self.holds_data else self.cfg.batch
            schedule = self.schedule(rows)
            with torch.no_grad():
                if self.first:
                    schedule.eval(data.inputs(i))
                elif self.last:
                    logits = schedule.eval()
                    self.losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), data.targets(i).flatten()).item())
                else:
                    schedule.eval()
            log.info("batch %d through the pipeline (%d rows)", i, rows)
        total = torch.tensor([sum(self.losses), float(len(self.losses))])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s stage{rank} %(message)s")
    cfg = PPConfig()
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    loss = PipelineRunner(cfg).evaluate(HeldOutSet(cfg))
    log.info("held-out loss %.4f", loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
