# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [1]
# culprits_any = [[1], [2], [0, 1], [0, 2], [1, 2]]
# lines = [61, 85, 91, 97]
# branch = ["self.loader", "enumerate(self.loader, start=1)"]
# source = "https://github.com/roboflow/rf-detr/pull/1396"
# ///
"""Evaluate a detector head on tar shards; running averages are shared every few batches."""
import io
import logging
import os
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import webdataset as wds

log = logging.getLogger("eval")


@dataclass
class EvalConfig:
    folder: str
    batch: int = 4
    dim: int = 10
    sync_every: int = 2
    shard_sizes: tuple = (24, 16, 24, 24, 24, 32)


def write_shards(cfg: EvalConfig) -> None:
    gen = torch.Generator().manual_seed(11)
    for n, size in enumerate(cfg.shard_sizes):
        with tarfile.open(os.path.join(cfg.folder, f"val-{n:04d}.tar"), "w") as tar:
            for k in range(size):
                buf = io.BytesIO()
                torch.save({"x": torch.randn(cfg.dim, generator=gen), "y": k % 2}, buf)
                info = tarfile.TarInfo(f"{n:04d}{k:04d}.pth")
                info.size = buf.tell()
                buf.seek(0)
                tar.addfile(info, buf)


class Averages:
    """Keeps sums, and mixes them over the ranks when asked."""

    def __init__(self):
        self.sums = torch.zeros(3, dtype=torch.double)

    def add(self, loss: float, hits: int, n: int) -> None:
        self.sums += torch.tensor([loss * n, hits, n], dtype=torch.double)

    def shared(self) -> torch.Tensor:
        total = self.sums.clone()
        dist.all_reduce(total)
        return total


class Evaluator:
    def __init__(self, cfg: EvalConfig):
        self.cfg = cfg
        self.head = torch.nn.Linear(cfg.dim, 2)
        self.averages = Averages()
        self.loader = self._make_loader()

    def _make_loader(self):
        last = len(self.cfg.shard_sizes) - 1
        urls = os.path.join(self.cfg.folder, f"val-{{0000..{last:04d}}}.tar")
        data = (
            wds.WebDataset(urls, shardshuffle=False, nodesplitter=wds.split_by_node)
            .decode()
            .map(lambda s: (s["pth"]["x"], s["pth"]["y"]))
            .batched(self.cfg.batch)
        )
        return wds.WebLoader(data, batch_size=None, num_workers=0)

    @torch.no_grad()
    def evaluate(self) -> dict:
        for n, (x, y) in enumerate(self.loader, start=1):
            y = torch.as_tensor(y)
            out = self.head(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            self.averages.add(loss.item(), int((out.argmax(1) == y).sum()), len(y))
            if n % self.cfg.sync_every == 0:
                total = self.averages.shared()
                log.info("rank %d batch %d: %d samples so far", dist.get_rank(), n, int(total[2]))
        return self.summary()

    def summary(self) -> dict:
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, self.averages.sums.tolist())
        loss, hits, n = map(sum, zip(*every))
        return {"loss": loss / n, "acc": hits / n}


def shared_folder() -> str:
    path = os.path.join(tempfile.gettempdir(), f"val-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['MASTER_PORT']}")
    os.makedirs(path, exist_ok=True)
    return path


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=4))
    cfg = EvalConfig(shared_folder())
    if dist.get_rank() == 0:
        write_shards(cfg)
    dist.barrier()
    log.info("rank %d: %s", dist.get_rank(), Evaluator(cfg).evaluate())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
