# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101", "HD109"]
# culprits = [2]
# lines = [47, 48, 103, 110, 111, 114]
# branch = ["block in self.val_stream", "range(0, tokens.numel() - self.block_size, self.block_size)", "self.chunks[self.rank::self.world]"]
# source = "https://github.com/Lightning-AI/litgpt/issues/2319"
# ///
import logging
import math
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("pretrain")


@dataclass
class PretrainArgs:
    vocab: int = 128
    dim: int = 32
    layers: int = 2
    block_size: int = 16
    steps: int = 12
    eval_every: int = 6
    train_chunks: int = 9
    val_chunks: int = 2


class ChunkStream:
    """Streams fixed-length blocks out of token chunks, split over the ranks."""

    def __init__(self, chunks, block_size, rank, world, loop):
        self.chunks, self.block_size = chunks, block_size
        self.rank, self.world, self.loop = rank, world, loop

    def _blocks(self):
        for tokens in self.chunks[self.rank::self.world]:
            for start in range(0, tokens.numel() - self.block_size, self.block_size):
                yield tokens[start:start + self.block_size + 1]

    def __iter__(self):
        while True:
            yield from self._blocks()
            if not self.loop:
                return


def make_chunks(n, length, vocab, seed):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab, (length,), generator=gen) for _ in range(n)]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class TinyLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.emb = nn.Embedding(args.vocab, args.dim)
        self.blocks = nn.ModuleList(Block(args.dim) for _ in range(args.layers))
        self.head = nn.Linear(args.dim, args.vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Pretrainer:
    def __init__(self, args, mesh):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.args = args
        torch.manual_seed(1337)
        self.model = TinyLM(args)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        train = make_chunks(args.train_chunks, 200, args.vocab, 1)
        val = make_chunks(args.val_chunks, 70, args.vocab, 2)
        self.train_stream = iter(ChunkStream(train, args.block_size, rank, world, loop=True))
        self.val_stream = ChunkStream(val, args.block_size, rank, world, loop=False)

    def loss_on(self, block):
        logits = self.model(block[:-1].unsqueeze(0))
        return F.cross_entropy(logits.squeeze(0), block[1:])

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = []
        for block in self.val_stream:
            losses.append(self.loss_on(block))
        mean = torch.stack(losses).mean() if losses else torch.tensor(math.nan)
        pair = torch.stack([torch.nan_to_num(mean), torch.tensor(float(len(losses) > 0))])
        dist.all_reduce(pair)
        self.model.train()
        return (pair[0] / pair[1]).item()

    def fit(self):
        for step in range(1, self.args.steps + 1):
            loss = self.loss_on(next(self.train_stream))
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            if step % self.args.eval_every == 0:
                log.info("step %d train %.3f", step, loss.item())
                log.info("step %d val %.3f", step, self.validate())


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    Pretrainer(PretrainArgs(), mesh).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
