# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD201", "HD505", "HD507", "HD508", "HD113", "HD602"]
# culprits_any = [[0, 1, 2], [0], [1], [2], [0, 1], [0, 2], [1, 2]]
# lines = [50, 52, 64, 88, 93]
# source = "pytorch/pytorch#26313 (#23569, #24036)"
# ///
"""Graph features over RPC: a shard that lacks a neighbour's row asks the shard that owns it."""
import argparse
import logging
import os

import torch
import torch.distributed.rpc as rpc

log = logging.getLogger("graph")


class FeatureShard:
    """Rows of the feature matrix that this process owns, and the edges that start at them."""

    instance = None

    def __init__(self, rank, world, rows, width):
        self.rank, self.world = rank, world
        generator = torch.Generator().manual_seed(rank)
        self.rows = torch.randn(rows, width, generator=generator)
        self.local_edges = [(row * 7 + 3) % rows for row in range(rows)]
        self.far = 0

    def owner(self, node):
        return node % self.world

    def neighbour(self, node, depth):
        row = self.local_edges[node // self.world % len(self.local_edges)]
        if depth % 2:
            return row * self.world + (self.rank + 1) % self.world
        return row * self.world + self.rank


def aggregate(node, depth):
    shard = FeatureShard.instance
    own = shard.rows[node // shard.world % len(shard.rows)]
    if depth == 0:
        return own
    following = shard.neighbour(node, depth)
    owner = shard.owner(following)
    if owner == shard.rank:
        return own + aggregate(following, depth - 1)
    shard.far += 1
    return own + rpc.rpc_sync(f"shard{owner}", aggregate, args=(following, depth - 1))


class Sampler:
    def __init__(self, rank, world, fanout):
        self.rank, self.world, self.fanout = rank, world, fanout

    def batch(self, number, depth):
        futures = []
        for item in range(self.fanout):
            node = (number * self.fanout + item) * self.world + (self.rank + 1) % self.world
            futures.append(rpc.rpc_async(f"shard{(self.rank + 1) % self.world}", aggregate, args=(node, depth)))
        return torch.stack(torch.futures.wait_all(futures))


def train(sampler, args):
    model = torch.nn.Linear(args.width, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(args.batches):
        depth = 0 if number < args.shallow else args.depth
        features = sampler.batch(number, depth)
        loss = model(features).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 9:
            log.info("batch %d loss %.3f", number, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--shallow", type=int, default=20)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--fanout", type=int, default=64)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--threads", type=int, default=4)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    FeatureShard.instance = FeatureShard(rank, world, 500, args.width)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=args.threads, rpc_timeout=1800)
    rpc.init_rpc(f"shard{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    train(Sampler(rank, world, args.fanout), args)
    log.info("asked other shards %d times", FeatureShard.instance.far)
    rpc.shutdown(timeout=1800)


if __name__ == "__main__":
    main()
