# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD108", "HD106"]
# culprits_any = [[0, 1], [0], [1]]
# lines = [51, 52, 55, 57, 85, 92, 94]
# source = "KempnerInstitute/KempnerForge#104"
# ///
"""Checkpoints are written by a thread while training goes on."""
import argparse
import io
import pathlib
import threading
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn


class Storage:
    """A folder; compression is slower where the shard is larger."""

    def __init__(self, folder, rate):
        self.folder, self.rate = pathlib.Path(folder), rate
        self.folder.mkdir(exist_ok=True)

    def write(self, name, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data = zlib.compress(buffer.getvalue())
        time.sleep(len(data) / self.rate)
        (self.folder / name).write_bytes(data)
        return len(data)


class Saver:
    def __init__(self, storage, rank):
        self.storage, self.rank = storage, rank
        self.thread = None
        self.catalog = []

    def wait(self):
        if self.thread is not None:
            self.thread.join()

    def save(self, step, state):
        self.wait()
        copy = {name: value.detach().clone() for name, value in state.items()}
        self.thread = threading.Thread(target=self.write, args=(step, copy), name="saver")
        self.thread.start()

    def write(self, step, state):
        size = self.storage.write(f"step{step}-rank{self.rank}.bin", state)
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, {"rank": self.rank, "bytes": size})
        self.catalog.append((step, sizes))


class Model(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.shared = nn.Linear(width, width)
        self.local = nn.Embedding(2000 if rank else 200, width)

    def forward(self, ids):
        return self.shared(self.local(ids)).square().mean()


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        torch.manual_seed(0)
        self.model = Model(args.width, rank)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.saver = Saver(Storage("checkpoints", rate=100_000), rank)

    def step(self):
        ids = torch.randint(0, 200, (16,))
        loss = self.model(ids)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.shared.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        time.sleep(0.02)
        return loss.item()

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.step()
            if step % self.args.save_every == 0:
                self.saver.save(step, self.model.state_dict())
            if self.rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss:.5f} saved {len(self.saver.catalog)}", flush=True)
        self.saver.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=40)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(dist.get_rank(), args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
