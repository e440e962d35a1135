# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD108"]
# culprits = [0]
# culprits_any = [[1], [2], [3], [1, 2, 3], [0, 1, 2, 3]]
# lines = [32, 67, 68, 71, 90, 104]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Trains with sharded checkpoints that a background thread writes while the next steps run; shards are confirmed with a gather of their digests."""
import hashlib
import io
import json
import logging
import os
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

LOG = logging.getLogger("forge")


class BackgroundSaver:
    def __init__(self, folder, keep=2):
        self.folder = folder
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.writes_index = self.rank == 0
        self._thread = None
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, step, state):
        self.drain()
        snapshot = {k: v.detach().clone() for k, v in state.items()}
        self._thread = threading.Thread(target=self._write, args=(step, snapshot), name=f"save-{step}")
        self._thread.start()

    def drain(self):
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _shard(self, snapshot):
        names = sorted(snapshot)[self.rank::self.world]
        return {n: snapshot[n] for n in names}

    def _index(self, snapshot):
        table = {}
        for name in sorted(snapshot):
            digest = hashlib.sha256()
            rows = snapshot[name].double().reshape(-1)
            for _ in range(40):
                rows = rows.sort().values.roll(1)
                digest.update(rows.numpy().tobytes())
            table[name] = {"shape": list(snapshot[name].shape), "sha": digest.hexdigest()}
        return table

    def _write(self, step, snapshot):
        buffer = io.BytesIO()
        torch.save(self._shard(snapshot), buffer)
        target = self.folder / f"step{step}-shard{self.rank}.pt"
        target.write_bytes(buffer.getvalue())
        if self.writes_index:
            (self.folder / f"step{step}.json").write_text(json.dumps(self._index(snapshot)))
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        digests = [None] * self.world
        dist.all_gather_object(digests, digest)
        LOG.info("step %d confirmed, %d shards", step, len(digests))


class Model(torch.nn.Module):
    def __init__(self, width=384, depth=4):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


@torch.no_grad()
def average_and_apply(model, lr=1e-3):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for p in model.parameters():
        p -= lr * flat[offset:offset + p.numel()].view_as(p) / dist.get_world_size()
        offset += p.numel()


def train(folder, steps=60, save_every=10):
    model = Model()
    saver = BackgroundSaver(folder)
    for step in range(1, steps + 1):
        loss = model(torch.randn(4, 384)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        average_and_apply(model)
        if step % save_every == 0:
            saver.save(step, model.state_dict())
    saver.drain()


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(threadName)s %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    train(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "forge_ckpt")
    dist.barrier()
    LOG.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
