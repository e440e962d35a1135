# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD108"]
# culprits_any = [[2], [0, 1, 3], [0, 1, 2, 3]]
# lines = [62, 72, 103, 114, 117]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Language-model training with checkpoints that a background thread writes and then commits.

The commit gathers the shards' sizes over the same group that the main thread reduces gradients on. Rank 2 holds the largest
shard and comes to the commit several steps later than the others: the two threads' calls meet in another order there.
"""
import concurrent.futures
import io
import json
import logging
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("lm")


@dataclass
class CkptConfig:
    folder: Path
    every: int = 8
    chunk: int = 4096
    write_delay: float = 0.02


class ShardStore:
    """A slow object store: chunk by chunk."""

    def __init__(self, cfg):
        self.cfg = cfg

    def put(self, name, payload):
        with open(self.cfg.folder / name, "wb") as f:
            for i in range(0, len(payload), self.cfg.chunk):
                f.write(payload[i:i + self.cfg.chunk])
                time.sleep(self.cfg.write_delay)
        return len(payload)


class BackgroundCheckpointer:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.store = ShardStore(cfg)
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="ckpt")
        self.pending = None

    def _write(self, step, payload):
        size = self.store.put(f"step{step}-rank{self.rank}.pt", payload)
        sizes = [None] * self.world if self.rank == 0 else None
        dist.gather_object(size, sizes, dst=0)
        if self.rank == 0:
            (self.cfg.folder / f"step{step}.json").write_text(json.dumps(sizes))
        return size

    def save(self, step, state):
        if self.pending is not None:
            self.pending.result()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.pending = self.pool.submit(self._write, step, buffer.getvalue())

    def close(self):
        if self.pending is not None:
            self.pending.result()
        self.pool.shutdown()


class ToyLM(torch.nn.Module):
    def __init__(self, vocab=128, hidden=16):
        super().__init__()
        self.emb = torch.nn.Embedding(vocab, hidden)
        self.mix = torch.nn.Linear(hidden, hidden)
        self.out = torch.nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.out(torch.relu(self.mix(self.emb(ids))))


class Loop:
    def __init__(self, cfg):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = ToyLM()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.ckpt = BackgroundCheckpointer(cfg, self.rank, self.world)
        self.cfg = cfg
        self.memory = {f"slot{i}": torch.randn(64, 16) for i in range(90 if self.rank == 2 else 2)}

    def reduce(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) / self.world)
            offset += p.numel()

    def step(self, n):
        ids = torch.randint(128, (4, 12))
        loss = torch.nn.functional.cross_entropy(self.model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        self.opt.zero_grad()
        loss.backward()
        self.reduce()
        self.opt.step()
        if n % self.cfg.every == 0:
            self.ckpt.save(n, {"model": self.model.state_dict(), "memory": self.memory, "step": n})
        time.sleep(0.05)
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="lm-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    loop = Loop(CkptConfig(Path(box[0])))
    for n in range(1, 200):
        loss = loop.step(n)
        if loop.rank == 0 and n % 5 == 0:
            log.info("step %d loss %.3f", n, loss)
    loop.ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
