# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD504", "HD113"]
# culprits_any = [[0], [1, 2], [0, 1, 2]]
# lines = [29, 51, 55, 60]
# source = "open-lm-engine/lm-engine#64, huggingface/datasets#547 (file lock around a step in which all ranks meet)"
# ///
"""Builds the sample index of a data set once per job; the index file is guarded by a lock."""
import argparse
import contextlib
import fcntl
import json
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist

log = logging.getLogger("data")


@contextlib.contextmanager
def locked(path):
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class SampleIndex:
    def __init__(self, folder, rank, samples):
        self.folder, self.rank, self.samples = pathlib.Path(folder), rank, samples
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "index.json"
        self.order = None

    def shuffle(self, seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.randperm(self.samples, generator=generator).tolist()

    def read(self):
        self.order = json.loads(self.path.read_text())

    def prepare(self, seed):
        with locked(self.folder / "index.lock"):
            if not self.path.exists():
                self.path.write_text(json.dumps(self.shuffle(seed)))
            self.read()
            self.verify()

    def verify(self):
        total = torch.tensor([float(sum(self.order[:100]))])
        lowest, highest = total.clone(), total.clone()
        dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        if lowest.item() != highest.item():
            raise RuntimeError("the ranks have read different orders")

    def shard(self, world):
        return self.order[self.rank::world]


class Tokenizer:
    def __init__(self, rank):
        time.sleep(0.3 * rank)
        self.size = 128

    def encode(self, sample):
        return [(sample * 31 + position) % self.size for position in range(16)]


def train(index, tokenizer, world, batch):
    model = torch.nn.EmbeddingBag(tokenizer.size, 8)
    shard = index.shard(world)
    for start in range(0, len(shard) - batch + 1, batch):
        tokens = torch.tensor([tokenizer.encode(sample) for sample in shard[start:start + batch]])
        loss = model(tokens).square().mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokenizer = Tokenizer(rank)
    folder = pathlib.Path(tempfile.gettempdir()) / f"samples-{os.environ['MASTER_PORT']}"
    index = SampleIndex(folder, rank, args.samples)
    index.prepare(args.seed)
    log.info("loss %.4f", train(index, tokenizer, world, args.batch))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
