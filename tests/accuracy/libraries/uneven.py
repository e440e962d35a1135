# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "healthy"
# source = "https://github.com/webdataset/webdataset/issues/194"
# ///
"""Shards of very different length, joined uneven training and a marker file that the slow rank leaves late."""
import logging
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from torch import nn
from torch.distributed.algorithms.join import Join

log = logging.getLogger("uneven")


class ShardStream:
    """Some ranks hold a few batches only; the last one reads slowly."""

    def __init__(self, rank):
        self.count = (5, 9, 14, 40)[rank % 4]
        self.delay = 0.3 if rank == 3 else 0.01
        self.gen = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for _ in range(self.count):
            time.sleep(self.delay)
            x = torch.randn(8, 6, generator=self.gen)
            yield x, x.sum(1, keepdim=True)


def wait_for(path, poll=0.25):
    while not path.exists():
        time.sleep(poll)
    return path.read_text()


def train(acc, model, opt, stream):
    seen = 0
    with Join([model]):
        for x, y in stream:
            opt.zero_grad()
            acc.backward(nn.functional.mse_loss(model(x), y))
            opt.step()
            seen += 1
    return seen


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=1))])
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    model, opt = acc.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    seen = train(acc, model, opt, ShardStream(acc.process_index))
    box = [tempfile.mkdtemp(prefix="uneven_%s_" % os.environ["MASTER_PORT"]) if acc.is_main_process else None]
    dist.broadcast_object_list(box)
    marker = Path(box[0]) / "report.txt"
    if acc.process_index == 3:
        time.sleep(8)
        tmp = marker.with_suffix(".part")
        tmp.write_text(f"{seen} batches on the slowest rank")
        tmp.rename(marker)
    text = wait_for(marker)
    total = acc.reduce(torch.tensor([seen]), reduction="sum").item()
    if acc.is_main_process:
        log.info("%s, %d in all", text, total)
    acc.end_training()


if __name__ == "__main__":
    main()
