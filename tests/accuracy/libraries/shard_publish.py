# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD303", "HD101", "HD109"]
# culprits = [3]
# lines = [58, 31, 61, 111, 108, 114]
# branch = ["not dirty", "self.published.get(", "digest("]
# source = "https://github.com/vllm-project/llm-compressor/pull/2869"
# ///
"""Trains a small model whose layers are owned by ranks and publishes changed shards to a folder every few steps."""
import contextlib
import datetime
import hashlib
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("publish")


@contextlib.contextmanager
def patient_group(minutes):
    """Uploads to the slow mount may outlast the usual limit, so they get a group of their own."""
    slow_group = dist.new_group(backend="gloo", timeout=datetime.timedelta(minutes=minutes))
    try:
        yield slow_group
        dist.barrier(group=slow_group)
    finally:
        dist.destroy_process_group(slow_group)


def digest(module):
    h = hashlib.sha1()
    for p in module.parameters():
        h.update(p.detach().numpy().tobytes())
    return h.hexdigest()


class ShardPublisher:
    def __init__(self, root, model, rank, world, every):
        self.root, self.every = Path(root), every
        names = [n for n, _ in model.named_children()]
        self.mine = {n: model.get_submodule(n) for i, n in enumerate(names) if i % world == rank}
        self.published = {}

    def maybe_publish(self, step):
        if step % self.every:
            return
        fresh = {name: digest(m) for name, m in self.mine.items()}
        dirty = [name for name, d in fresh.items() if self.published.get(name) != d]
        if not dirty:
            log.info("step %d: nothing new to publish", step)
            return
        with patient_group(minutes=45):
            for name in dirty:
                target = self.root / f"{name}-{step:05d}.pt"
                torch.save(self.mine[name].state_dict(), target)
                self.published[name] = fresh[name]
        log.info("step %d: published %s", step, ", ".join(dirty))


class Tagger(nn.Module):
    def __init__(self, vocab=200, dim=32, tags=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.mixer = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, tags)
        self.embed = nn.Embedding(vocab, dim)

    def forward(self, ids):
        x = self.embed(ids).mean(1)
        return self.head(F.gelu(self.mixer(F.gelu(self.proj(x)))))


def average(value, world):
    t = value.detach().clone()
    dist.all_reduce(t)
    return (t / world).item()


def train(cfg):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.manual_seed(0)
    model = Tagger()
    if cfg["freeze_embeddings_after"] == 0:
        model.embed.requires_grad_(False)
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "published"
    root.mkdir(parents=True, exist_ok=True)
    publisher = ShardPublisher(root, model, rank, world, cfg["publish_every"])
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(cfg["steps"]):
        ids = torch.randint(0, 200, (16, 12), generator=gen)
        loss = F.cross_entropy(model(ids), ids[:, 0] % 8)
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= world
        opt.step()
        mean = average(loss, world)
        if step % 5 == 0:
            log.info("step %d loss %.4f", step, mean)
        publisher.maybe_publish(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    train({"steps": 60, "publish_every": 10, "freeze_embeddings_after": 0})
