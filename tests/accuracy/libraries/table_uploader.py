# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD505", "HD508"]
# culprits = [0]
# lines = [58, 66, 102]
# source = "own"
# ///
"""Rank 0 logs prediction tables with a background uploader and waits at each evaluation until its queue is empty. The uploader thread
dies from a NaN that strict JSON refuses, so queue.join() never returns; the others wait at the barrier after the evaluation."""
import json
import logging
import queue
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("seg")


@dataclass
class EvalConfig:
    features: int = 8
    classes: int = 3
    batch: int = 6
    steps: int = 400
    eval_every: int = 4
    rows: int = 3
    lr: float = 0.02


@dataclass
class TableRow:
    step: int
    truth: int
    guess: int
    margin: float


class Uploader(threading.Thread):
    """Takes tables from a queue and writes one JSON file for each."""

    def __init__(self, folder):
        super().__init__(name="table-uploader", daemon=True)
        self.folder, self.queue = Path(folder), queue.Queue()

    def run(self):
        while True:
            name, rows = self.queue.get()
            text = json.dumps([asdict(r) for r in rows], allow_nan=False)
            (self.folder / f"{name}.json").write_text(text)
            self.queue.task_done()

    def submit(self, name, rows):
        self.queue.put((name, rows))

    def drain(self):
        self.queue.join()


class NullUploader:
    def submit(self, name, rows):
        pass

    def drain(self):
        pass


class Evaluator:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.uploader = NullUploader()
        if rank == 0:
            self.uploader = Uploader(tempfile.mkdtemp(prefix="tables-"))
            self.uploader.start()
        self.gen = torch.Generator().manual_seed(77)

    def margin(self, logits, temperature):
        top = (logits / temperature).softmax(-1).topk(2).values
        return (top[..., 0] - top[..., 1]).tolist()

    @torch.no_grad()
    def __call__(self, model, step):
        x = torch.randn(self.cfg.batch, self.cfg.features, generator=self.gen)
        y = x[:, :self.cfg.classes].argmax(-1)
        logits = model.module(x)
        temperature = max(0.0, 1.0 - step / 16)  # sharpen over time
        margins = self.margin(logits, temperature)
        guesses = logits.argmax(-1)
        rows = [TableRow(step, y[i].item(), guesses[i].item(), margins[i]) for i in range(self.cfg.rows)]
        self.uploader.submit(f"predictions-{step:05d}", rows)
        accuracy = (guesses == y).float().mean()
        dist.all_reduce(accuracy)
        self.uploader.drain()
        dist.barrier()
        return accuracy.item() / dist.get_world_size()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg, rank = EvalConfig(), dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, cfg.classes)))
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    evaluate = Evaluator(cfg, rank)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, cfg.steps + 1):
        x = torch.randn(cfg.batch, cfg.features, generator=gen)
        loss = F.cross_entropy(model(x), x[:, :cfg.classes].argmax(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % cfg.eval_every == 0:
            accuracy = evaluate(model, step)
            if rank == 0:
                log.info("step %d loss %.3f accuracy %.2f", step, loss.item(), accuracy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
