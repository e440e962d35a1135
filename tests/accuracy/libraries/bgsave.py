# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD108"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [69, 70, 76, 88, 117]
# branch = ["nbytes <= self.cfg.inline_limit"]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Sharded checkpoint writer thread that ends with a barrier on the training group. Small shards are awaited, large ones go on in
the background; only rank 3's embedding shard has outgrown the limit, so there the next all_reduce comes before the barrier."""
import io
import logging
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("bgsave")


@dataclass
class SaveConfig:
    steps: int = 30
    save_every: int = 4
    inline_limit: int = 40_000
    chunk: int = 2_048
    dim: int = 8
    lr: float = 0.05


class GrowingTable(nn.Module):
    """Embedding rows of the ids that hash to this rank; new ids get a row when they are first seen."""

    def __init__(self, dim):
        super().__init__()
        self.dim, self.rows = dim, {}

    def lookup(self, ids):
        for i in ids:
            if i not in self.rows:
                self.rows[i] = torch.randn(self.dim) * 0.1
        return torch.stack([self.rows[i] for i in ids])

    def dump(self):
        return {"ids": torch.tensor(list(self.rows)), "rows": torch.stack(list(self.rows.values()))}


class BackgroundSaver:
    def __init__(self, cfg, folder, rank):
        self.cfg, self.folder, self.rank = cfg, folder, rank
        self.thread = None

    def save(self, step, state):
        self.wait()
        buf = io.BytesIO()
        torch.save(state, buf)
        data = buf.getvalue()
        nbytes = len(data)
        self.thread = threading.Thread(target=self._write, args=(step, data), name=f"saver-{step}")
        self.thread.start()
        if nbytes <= self.cfg.inline_limit:
            self.wait()
        else:
            log.info("rank %d: %d bytes, writing in the background", self.rank, nbytes)

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def _write(self, step, data):
        path = self.folder / f"step{step}-rank{self.rank}.pt.part"
        with open(path, "wb") as f:
            for at in range(0, len(data), self.cfg.chunk):
                f.write(data[at : at + self.cfg.chunk])
                f.flush()
                os.fsync(f.fileno())
                time.sleep(0.05)  # bandwidth limit of the shared disk
        os.replace(path, path.with_suffix(""))
        dist.barrier()
        if self.rank == 0:
            (self.folder / "latest").write_text(str(step))


def ids_of(step, rank, gen):
    fresh = 700 if rank == 3 and step >= 10 else 20
    return torch.randint(step * 1000, step * 1000 + 5000, (fresh,), generator=gen).tolist()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    cfg = SaveConfig()
    box = [tempfile.mkdtemp(prefix="ckpt-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    saver = BackgroundSaver(cfg, Path(box[0]), rank)
    table, head = GrowingTable(cfg.dim), nn.Linear(cfg.dim, 1)
    optim = torch.optim.SGD(head.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, cfg.steps + 1):
        feats = table.lookup(ids_of(step, rank, gen))
        optim.zero_grad()
        loss = (head(feats) - 1).pow(2).mean()
        loss.backward()
        for p in head.parameters():
            dist.all_reduce(p.grad)
        optim.step()
        if step % cfg.save_every == 0:
            saver.save(step, {"table": table.dump(), "head": head.state_dict()})
            if rank == 0:
                log.info("step %d loss %.3f", step, loss.item())
    saver.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
