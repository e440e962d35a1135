# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD109"]
# culprits = [1]
# lines = [38, 42, 43]
# branch = ["layerdrop", "keep", "random"]
# source = "https://github.com/facebookresearch/fairseq/issues/3875"
# ///
"""Each layer of an encoder is sharded and LayerDrop skips layers by a coin that every rank tosses for itself.
At step 5 rank 1's coin skips the second layer, whose parameters the others gather."""
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class EncoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.ff = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.ff(self.norm(x)))


class Encoder(nn.Module):
    def __init__(self, depth=3, width=16, layerdrop=0.1, seed=0):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(depth))
        self.layerdrop, self.coin = layerdrop, random.Random(seed)
        self.head = nn.Linear(width, 1)

    def keep(self):
        return not self.training or self.coin.random() > self.layerdrop

    def forward(self, x):
        for layer in self.layers:
            if self.keep():
                x = layer(x)
        return self.head(x)


def seed_for(rank):
    """A seed whose first skipped layer, if any, is the 14th toss on rank 1 and none of the first 30 elsewhere."""
    seed = 0
    while True:
        coin = random.Random(seed)
        tosses = [coin.random() > 0.1 for _ in range(30)]
        if all(tosses) if rank != 1 else tosses.count(False) == 1 and not tosses[13]:
            return seed
        seed += 1


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(5, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = shard(Encoder(seed=seed_for(dist.get_rank())))
    train(model, 10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
