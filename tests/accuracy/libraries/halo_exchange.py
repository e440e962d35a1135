# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201"]
# culprits = [0, 1, 2]
# culprits_any = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2, 3]]
# lines = [48, 61, 62, 64, 65, 68]
# source = "https://github.com/NVIDIA/nccl/issues/1967"
# ///
"""Jacobi sweeps on a mesh cut into parts; neighbouring parts swap the values of their border nodes each sweep."""
import io
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("halo")

PARTITION = """\
part,neighbour,border_nodes
0,1,90
0,2,40
0,3,30
1,2,80
1,0,52
1,3,20
2,0,85
2,1,45
2,3,25
3,2,66
3,1,31
3,0,12
"""


class Partition:
    def __init__(self, text):
        rows = io.StringIO(text).read().split()[1:]
        self.border = {}
        for row in rows:
            part, neighbour, nodes = map(int, row.split(","))
            self.border.setdefault(part, {})[neighbour] = nodes

    def neighbours(self, part):
        """The largest borders first: their messages take longest."""
        nodes = self.border[part]
        return sorted(nodes, key=nodes.get, reverse=True)


class Halo:
    def __init__(self, partition, rank):
        self.rank = rank
        self.partition = partition
        self.order = partition.neighbours(rank)
        self.values = {p: torch.zeros(partition.border[p][rank]) for p in self.order}

    def swap(self, peer, mine):
        theirs = self.values[peer]
        if self.rank < peer:
            dist.send(mine, peer)
            dist.recv(theirs, peer)
        else:
            dist.recv(theirs, peer)
            dist.send(mine, peer)

    def exchange(self, field):
        for peer in self.order:
            nodes = self.partition.border[self.rank][peer]
            self.swap(peer, field[:nodes].contiguous())
        return torch.cat([self.values[p] for p in self.order])


class Solver:
    def __init__(self, halo, size, tolerance=1e-3):
        self.halo, self.tolerance = halo, tolerance
        gen = torch.Generator().manual_seed(halo.rank)
        self.field = torch.rand(size, generator=gen)

    def sweep(self):
        outside = self.halo.exchange(self.field)
        fresh = 0.5 * self.field + 0.25 * self.field.roll(1) + 0.25 * outside.mean()
        change = (fresh - self.field).abs().max()
        self.field = fresh
        dist.all_reduce(change, op=dist.ReduceOp.MAX)
        return change.item()

    def solve(self, limit=50):
        for sweep in range(limit):
            change = self.sweep()
            if self.halo.rank == 0:
                log.info("sweep %d: change %.5f", sweep, change)
            if change < self.tolerance:
                break


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    partition = Partition(PARTITION)
    halo = Halo(partition, dist.get_rank())
    log.info("part %d has neighbours %s", halo.rank, halo.order)
    dist.barrier()
    Solver(halo, size=400).solve()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
