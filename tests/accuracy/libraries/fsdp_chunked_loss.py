# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101", "HD109"]
# culprits_any = [[0], [1]]
# lines = [45, 47, 48, 93, 95]
# branch = ["part in picked.split(self.chunk)", "picked.split(self.chunk)", "labels != IGNORE"]
# source = "https://github.com/huggingface/trl/pull/6698"
# ///
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("distill")
IGNORE = -100


class Backbone(nn.Module):
    def __init__(self, vocab=96, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, ids):
        x = self.emb(ids)
        return x + self.mix(x)


class ChunkedHead(nn.Module):
    """Scores only the supervised tokens, a chunk at a time, to keep the logits small."""

    def __init__(self, dim, vocab, chunk):
        super().__init__()
        self.proj = nn.Linear(dim, vocab, bias=False)
        self.chunk = chunk

    def forward(self, hidden, labels):
        picked = (labels != IGNORE).nonzero().squeeze(-1)
        total = hidden.new_zeros(())
        for part in picked.split(self.chunk):
            logits = self.proj(hidden[part])
            total = total + nn.functional.cross_entropy(logits, labels[part], reduction="sum")
        return total / max(1, picked.numel())


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = ChunkedHead(16, 96, chunk=16)

    def forward(self, ids, labels):
        hidden = self.backbone(ids)
        return self.head(hidden.flatten(0, 1), labels.flatten())


class Conversations:
    """Prompts with answers; only the answers are supervised."""

    def __init__(self, rank, width=40):
        self.gen = torch.Generator().manual_seed(60 + rank)
        self.rank, self.width = rank, width

    def answer_start(self, step):
        short_answer = self.rank == 1 and step == 4
        return self.width - 6 if short_answer else self.width - 14

    def batch(self, step):
        ids = torch.randint(0, 96, (2, self.width), generator=self.gen)
        labels = ids.roll(-1, dims=1)
        labels[:, :self.answer_start(step)] = IGNORE
        return ids, labels


class Distiller:
    def __init__(self, rank, mesh):
        torch.manual_seed(14)
        self.model = Student()
        for part in (self.model.backbone, self.model.head.proj, self.model):
            fully_shard(part, mesh=mesh, reshard_after_forward=True)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.data = Conversations(rank)

    def step(self, number):
        ids, labels = self.data.batch(number)
        loss = self.model(ids, labels)
        reference = loss.detach().clone()
        dist.broadcast(reference, src=0)
        (loss / reference.clamp(min=1.0)).backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    distiller = Distiller(dist.get_rank(), mesh)
    for number in range(1, 20):
        log.info("step %d loss %.4f", number, distiller.step(number))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
