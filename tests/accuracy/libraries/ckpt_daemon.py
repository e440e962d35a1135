# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106"]
# culprits = [2]
# lines = [37, 50, 52, 60, 85, 93]
# branch = ["self.process is None", "self.process.is_alive()"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/3844"
# ///
"""Trains in small steps; a helper process per rank, started with the first save, writes checkpoints in the background."""
import io
import logging
import multiprocessing as mp
import os
import pathlib
import tempfile
import uuid

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ckpt")
BLOCKS = ["stem", "body", "head/aux", "head"]


def write_loop(root, inbox):
    """Body of the helper: one file per block and step."""
    while True:
        item = inbox.get()
        if item is None:
            return
        run, step, name, blob = item
        folder = pathlib.Path(root) / run / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(blob)


class BackgroundWriter:
    def __init__(self, root, block):
        self.root, self.block = root, block
        self.ctx = mp.get_context("fork")
        self.process = None
        self.inbox = None
        self.run = None

    def ensure(self):
        """Starts the helper where there is none; all ranks write below the run name that the first one draws."""
        if self.process is None or not self.process.is_alive():
            run = [uuid.uuid4().hex[:8]]
            dist.broadcast_object_list(run, src=0)
            self.run = run[0]
            self.inbox = self.ctx.SimpleQueue()
            self.process = self.ctx.Process(target=write_loop, args=(self.root, self.inbox), daemon=True)
            self.process.start()
            log.info("rank %d: writer %d for run %s", dist.get_rank(), self.process.pid, self.run)

    def save(self, step, state):
        self.ensure()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.inbox.put((self.run, step, self.block, buffer.getvalue()))

    def close(self):
        if self.process is not None:
            self.inbox.put(None)
            self.process.join()


class Trainer:
    def __init__(self, rank, writer):
        torch.manual_seed(rank)
        self.rank, self.writer = rank, writer
        self.model = nn.Linear(160, 160)

    def step(self):
        x = torch.randn(256, 160)
        loss = self.model(x).tanh().pow(2).mean()
        self.model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.model.parameters():
                grad = p.grad
                dist.all_reduce(grad)
                p -= 0.01 * grad / dist.get_world_size()
        return loss.item()

    def run(self, steps, save_every):
        for number in range(1, steps + 1):
            loss = self.step()
            if number % save_every == 0:
                self.writer.save(number, self.model.state_dict())
                if self.rank == 0:
                    log.info("step %d loss %.4f", number, loss)
        self.writer.close()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), f"ckpt-{os.getppid()}")
    writer = BackgroundWriter(root, BLOCKS[rank % len(BLOCKS)])
    Trainer(rank, writer).run(steps=1200, save_every=120)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
