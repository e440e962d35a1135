# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD303", "HD305", "HD301", "HD302", "HD107", "HD101", "HD113"]
# culprits_any = [[3], [0], [0, 3]]
# lines = [42, 43, 44]
# branch = ["self.host in self.cache_hosts"]
# source = "pytorch docs and issues on new_group(): all ranks have to call it, in the same order"
# ///
"""Hierarchical reduction: first within a host, then between the hosts' leaders."""
import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("topology")


def parse_hosts(text):
    """'alpha=0-2,beta=3' -> {'alpha': [0, 1, 2], 'beta': [3]}"""
    hosts = {}
    for part in text.split(","):
        name, ranks = part.split("=")
        first, _, last = ranks.partition("-")
        hosts[name] = list(range(int(first), int(last or first) + 1))
    return hosts


class Topology:
    def __init__(self, rank, hosts, cache_hosts):
        self.rank = rank
        self.hosts, self.cache_hosts = hosts, cache_hosts
        self.host = next(name for name, ranks in hosts.items() if rank in ranks)
        self.leaders = [ranks[0] for ranks in hosts.values()]
        self.local_group = self.leader_group = self.cache_group = None

    def connect(self):
        groups = {name: dist.new_group(ranks) for name, ranks in self.hosts.items()}
        self.local_group = groups[self.host]
        if self.host in self.cache_hosts:
            self.cache_group = dist.new_group(self.hosts[self.host])
        self.leader_group = dist.new_group(self.leaders)
        return self

    @property
    def leads(self):
        return self.rank in self.leaders


class Reducer:
    def __init__(self, topology):
        self.topology = topology

    def all_reduce(self, tensor):
        t = self.topology
        dist.reduce(tensor, dst=t.hosts[t.host][0], group=t.local_group)
        if t.leads:
            dist.all_reduce(tensor, group=t.leader_group)
        dist.broadcast(tensor, src=t.hosts[t.host][0], group=t.local_group)
        return tensor


class Regression:
    def __init__(self, rank, width):
        generator = torch.Generator().manual_seed(rank)
        self.x = torch.randn(256, width, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True)
        self.weight = torch.zeros(width, 1, requires_grad=True)

    def gradient(self):
        loss = (self.x @ self.weight - self.y).square().mean()
        (gradient,) = torch.autograd.grad(loss, self.weight)
        return loss.item(), gradient


def train(model, reducer, steps, world):
    for step in range(steps):
        loss, gradient = model.gradient()
        gradient = reducer.all_reduce(gradient) / world
        with torch.no_grad():
            model.weight -= 0.1 * gradient
        if step % 20 == 0:
            log.info("step %d loss %.4f", step, loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", default=os.environ.get("JOB_HOSTS", "alpha=0-2,beta=3"))
    parser.add_argument("--cache-hosts", default="beta", help="hosts that keep the data set on a local disk")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=10)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Regression(rank, args.width)
    topology = Topology(rank, parse_hosts(args.hosts), args.cache_hosts.split(",")).connect()
    start = torch.tensor([float(rank)])
    dist.broadcast(start, src=0)
    train(model, Reducer(topology), args.steps, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
