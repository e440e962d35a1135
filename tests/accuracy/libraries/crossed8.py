# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits_any = [[3], [6], [3, 6]]
# lines = [41, 45, 49, 53, 54, 57]
# branch = ["eager", "overlap"]
# source = "https://github.com/meta-pytorch/torchrec/pull/4149"
# ///
"""Eight ranks in shards of four and replicas of two; features are exchanged in the shard and gradients in the replica.
Ranks 3 and 6 took the path that reduces first and exchanges then, so that the groups wait for each other in a circle."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Groups:
    def __init__(self, rank):
        for start in (0, 4):
            ranks = list(range(start, start + 4))
            group = dist.new_group(ranks, group_desc=f"mesh_shard{start}")
            if rank in ranks:
                self.shard = group
        for i in range(4):
            group = dist.new_group([i, i + 4], group_desc=f"mesh_replicate{i}")
            if rank in (i, i + 4):
                self.replicate = group


class Pipeline:
    def __init__(self, rank):
        self.rank, self.groups = rank, Groups(rank)
        self.overlap = rank in (3, 6) and os.environ.get("OVERLAP", "1") == "1"

    def exchange(self, features):
        out = [torch.empty_like(features) for _ in range(4)]
        dist.all_gather(out, features, group=self.groups.shard)
        return torch.stack(out).sum(0)

    def reduce(self, grads):
        dist.all_reduce(grads, group=self.groups.replicate)
        return grads

    def eager(self, step):
        return self.overlap and step == 7

    def step(self, step):
        features, grads = torch.ones(5) * step, torch.ones(9)
        if self.eager(step):
            grads = self.reduce(grads)
            features = self.exchange(features)
        else:
            features = self.exchange(features)
            grads = self.reduce(grads)
        return features.sum() + grads.sum()


def worker(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    pipeline = Pipeline(rank)
    for step in range(15):
        pipeline.step(step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
    mp.start_processes(worker, args=(8,), nprocs=8, start_method="fork")
