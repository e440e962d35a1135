# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "healthy"
# ///
import logging
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import MeanMetric

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("sites")
SCANS = (60, 150, 90)


class Site:
    """Scans of one hospital; the slow scanner takes its time."""

    def __init__(self, rank, pause):
        self.gen = torch.Generator().manual_seed(rank)
        self.count, self.pause = SCANS[rank % len(SCANS)], pause

    def _read(self, out):
        for i in range(self.count):
            if i > 90:
                time.sleep(self.pause)
            out.put(torch.randn(6, 10, generator=self.gen))
        out.put(None)

    def __iter__(self):
        out = queue.Queue(4)
        thread = threading.Thread(target=self._read, args=(out,), name="scanner", daemon=True)
        thread.start()
        while (scan := out.get()) is not None:
            yield scan
        thread.join()


class Exchange:
    """The last rank writes the table; the others look for it from time to time."""

    def __init__(self, root):
        self.path = Path(root) / "table.txt"

    def publish(self, text, work=7.0):
        end = time.monotonic() + work
        while time.monotonic() < end:
            torch.randn(120, 120).svd()
            time.sleep(0.05)
        tmp = self.path.with_suffix(".tmp")
        tmp.write_text(text)
        tmp.rename(self.path)

    def fetch(self):
        while not self.path.exists():
            time.sleep(0.3)
        return self.path.read_text()


def train(model, opt, site, meter):
    with Join([model]):
        for scan in site:
            loss = (model(scan) - scan.roll(1, dims=1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.update(loss.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = Path(tempfile.gettempdir()) / f"sites_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    model = DDP(nn.Linear(10, 10))
    opt, meter = torch.optim.SGD(model.parameters(), lr=1e-2), MeanMetric()
    train(model, opt, Site(rank, pause=0.15), meter)
    value = meter.compute().item()
    exchange = Exchange(root)
    if rank == world - 1:
        exchange.publish(f"mean {value:.4f}")
    log.info("table: %s", exchange.fetch())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
