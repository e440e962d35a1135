# /// hangdoc
# watch = "--give-up-after 8"
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD505", "HD507"]
# culprits = [0]
# lines = [66, 78, 90, 92, 95, 99, 116]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/2422"
# ///
"""Asynchronous checkpoints by a forked writer; metrics leave through a background uploader."""
import json
import logging
import multiprocessing as mp
import os
import queue
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("train")


@dataclass
class Config:
    steps: int = 60
    save_every: int = 20
    dim: int = 32
    link_delay: float = 0.4


class MetricSink:
    """Batches records; a thread ships them so that training never waits for the link."""

    def __init__(self, path: str, delay: float):
        self.path, self.delay = path, delay
        self.lock = threading.Lock()
        self.inbox = queue.SimpleQueue()
        self.shipped = threading.Event()
        self.thread = None

    def connect(self) -> None:
        self.thread = threading.Thread(target=self._ship, name="uploader", daemon=True)
        self.thread.start()

    def _ship(self) -> None:
        while True:
            batch = [self.inbox.get()]
            with self.lock:
                self.shipped.set()
                time.sleep(self.delay)
                while not self.inbox.empty():
                    batch.append(self.inbox.get())
                with open(self.path, "a") as fh:
                    fh.writelines(json.dumps(r) + "\n" for r in batch)

    def record(self, **values) -> None:
        if self.thread is not None:
            self.inbox.put(values)

    def note(self, text: str) -> None:
        with self.lock:
            with open(self.path, "a") as fh:
                fh.write(json.dumps({"note": text}) + "\n")


SINK: MetricSink | None = None


def write_shard(state: dict, path: str) -> None:
    start = time.time()
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)
    SINK.note(f"{os.path.basename(path)} in {time.time() - start:.2f}s")


class AsyncSaver:
    def __init__(self, folder: str):
        self.folder = folder
        self.ctx = mp.get_context("fork")
        self.proc = None

    def finalize(self) -> None:
        if self.proc is None:
            return
        self.proc.join()
        self.proc = None
        dist.barrier()

    def save(self, model: torch.nn.Module, step: int) -> None:
        self.finalize()
        path = os.path.join(self.folder, f"step{step}-rank{dist.get_rank()}.pt")
        state = {k: v.clone() for k, v in model.state_dict().items()}
        self.proc = self.ctx.Process(target=write_shard, args=(state, path), name="writer")
        self.proc.start()


def train(cfg: Config, saver: AsyncSaver) -> None:
    model = torch.nn.Linear(cfg.dim, cfg.dim)
    for step in range(1, cfg.steps + 1):
        x = torch.randn(8, cfg.dim)
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 1e-2 * p.grad / dist.get_world_size()
        SINK.record(step=step, loss=loss.item())
        if step % cfg.save_every == 0:
            if SINK.thread is not None:
                SINK.shipped.wait()
            saver.save(model, step)
            log.info("rank %d step %d handed to the writer", dist.get_rank(), step)
    saver.finalize()


def main() -> None:
    global SINK
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    cfg = Config()
    folder = tempfile.mkdtemp(prefix=f"async-{os.environ['MASTER_PORT']}-")
    SINK = MetricSink(os.path.join(folder, "metrics.jsonl"), cfg.link_delay)
    if dist.get_rank() == 0:
        SINK.connect()
    train(cfg, AsyncSaver(folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
