# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits = [1]
# lines = [53, 58, 59, 61, 63, 92, 93, 119, 120, 121, 128, 134]
# branch = ["except Exception", "except SlotFailed", "future in list(self.pending.items())", "peak > self.alarm"]
# source = "https://github.com/ByteDance-Seed/VeOmni/pull/1181"
# ///
"""Sharded training that writes its checkpoints in the background with torch.distributed.checkpoint and one slot per state owner."""
import json
import logging
import os
import pathlib
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("trainer")


class SlotFailed(RuntimeError):
    pass


class BackgroundSaver:
    """Model and extra state go to their own folders; saves overlap with the following steps."""

    def __init__(self, root):
        self.root = root
        self.control = dist.new_group(backend="gloo")
        self.io_group = dist.new_group(backend="gloo")
        self.pool = ThreadPoolExecutor(1)
        self.pending = {}

    def save(self, step, model, extra):
        model_dir = self.root / f"step{step:04d}" / "model"
        extra_dir = self.root / f"step{step:04d}" / "extra"
        state = {"model": get_model_state_dict(model)}
        self.pending["model"] = dcp.async_save(state, checkpoint_id=str(model_dir), process_group=self.io_group)
        self.pending["extra"] = self.pool.submit(self._write_extra, extra_dir, extra)

    def _write_extra(self, folder, extra):
        target = folder / f"rank{dist.get_rank()}"
        target.mkdir(parents=True, exist_ok=True)
        (target / "trainer.json").write_text(json.dumps(extra))

    def drain(self):
        for slot, future in list(self.pending.items()):
            try:
                future.result()
            except Exception as error:
                self.pending.clear()
                raise SlotFailed(slot) from error
        self.pending.clear()
        dist.barrier(self.control)

    def close(self):
        self.pool.shutdown()


class MLP(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


class RunningStats:
    """What the data pipeline has seen so far on this rank."""

    def __init__(self, alarm=4.35):
        self.samples, self.sources, self.alarm = 0, {}, alarm

    def update(self, batch, source):
        self.samples += len(batch)
        entry = self.sources.setdefault(source, {"samples": 0, "mean": 0.0, "outliers": []})
        entry["samples"] += len(batch)
        entry["mean"] = batch.mean().item()
        peak = batch.abs().max()
        if peak > self.alarm:
            entry["outliers"].append(peak)

    def state(self):
        return {"samples": self.samples, "sources": self.sources}


class Trainer:
    def __init__(self, root, save_every=10, steps=60):
        torch.manual_seed(0)
        self.model = MLP()
        for layer in self.model.layers:
            fully_shard(layer)
        fully_shard(self.model)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=False)
        self.saver = BackgroundSaver(root)
        self.stats = RunningStats()
        self.save_every, self.steps = save_every, steps

    def batches(self):
        gen = torch.Generator().manual_seed(62 + dist.get_rank())
        for step in range(self.steps):
            source = ("web", "books", "code")[int(torch.randint(0, 3, (), generator=gen))]
            yield step, source, torch.randn(16, 48, generator=gen)

    def checkpoint(self, step):
        try:
            self.saver.drain()
        except SlotFailed as failed:
            log.warning("step %d: the previous save of slot %s did not finish: %r", step, failed, failed.__cause__)
        self.saver.save(step, self.model, {"step": step, **self.stats.state()})

    def fit(self):
        for step, source, batch in self.batches():
            self.stats.update(batch, source)
            loss = (self.model(batch) - batch.roll(1, 1)).pow(2).mean()
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            if step % self.save_every == self.save_every - 1:
                self.checkpoint(step)
                log.info("step %d loss %.3f", step, loss.item())
        self.saver.drain()
        self.saver.close()


def main():
    dist.init_process_group("cpu:gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"bgsave-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    Trainer(root).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
