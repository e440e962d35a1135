# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD108", "HD106"]
# culprits_any = [[1], [0, 1, 2], [0, 2]]
# lines = [84, 89, 98, 116, 123]
# source = "https://github.com/Tencent-Hunyuan/UniRL/pull/410"
# ///
import functools
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint import FileSystemWriter

log = logging.getLogger("backend")


@dataclass
class RunConfig:
    steps: int = 40
    save_every: int = 6
    embed_every: int = 4
    root: str = os.path.join(tempfile.gettempdir(), f"dcp_{os.environ.get('MASTER_PORT', '0')}")


@functools.lru_cache(maxsize=None)
def gloo_group():
    return dist.new_group(backend="gloo", timeout=timedelta(hours=2))


class QuotaWriter(FileSystemWriter):
    """Looks for room on the volume before a save: large tenants have more files to count."""

    def __init__(self, path, tenant_files):
        super().__init__(path, single_file_per_rank=True, thread_count=1)
        self.tenant_files = tenant_files

    def _count(self):
        used = 0
        for _ in range(self.tenant_files):
            used += 1
            time.sleep(0.01)
        return used

    def prepare_local_plan(self, plan):
        used = self._count()
        log.info("volume has %d files", used)
        return super().prepare_local_plan(plan)


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 8)

    def forward(self, ids):
        return self.table(ids).mean(1)


class Backend:
    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.rank = rank
        self.head = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
        self.encoder = TextEncoder()
        self.opt = torch.optim.AdamW(self.head.parameters(), lr=1e-3)
        self.pending = None
        self.tenants = [4, 400, 4, 4]

    def save(self, step):
        if self.pending is not None:
            self.pending.result()
        state = {"head": self.head.module.state_dict(), "step": torch.tensor(step)}
        writer = QuotaWriter(f"{self.cfg.root}/step_{step}", self.tenants[self.rank])
        self.pending = dcp.async_save(state, storage_writer=writer, process_group=gloo_group())

    def onload_encoder(self):
        self.encoder.float()
        time.sleep(0.3)
        dist.barrier(group=gloo_group())

    def offload_encoder(self):
        self.encoder.half()

    def train_step(self, ids):
        feats = self.encoder(ids).detach().float()
        loss = self.head(feats).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


class Loop:
    def __init__(self, backend, cfg):
        self.backend = backend
        self.cfg = cfg

    def batches(self):
        g = torch.Generator().manual_seed(3)
        for _ in range(self.cfg.steps):
            yield torch.randint(0, 100, (4, 6), generator=g)

    def run(self):
        for step, ids in enumerate(self.batches(), 1):
            if step % self.cfg.embed_every == 1:
                self.backend.onload_encoder()
            loss = self.backend.train_step(ids)
            if step % self.cfg.embed_every == 0:
                self.backend.offload_encoder()
                self.backend.encoder.float()
            if step % self.cfg.save_every == 0:
                self.backend.save(step)
                self.backend.onload_encoder()
            if self.backend.rank == 0:
                log.info("step %d loss %.4f", step, loss)
        self.backend.pending.result()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    cfg = RunConfig()
    os.makedirs(cfg.root, exist_ok=True)
    gloo_group()
    Loop(Backend(cfg, dist.get_rank()), cfg).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
