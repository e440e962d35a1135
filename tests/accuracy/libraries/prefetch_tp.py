# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101"]
# culprits_any = [[3], [2]]
# lines = [32, 35, 52, 62]
# branch = ["ongoing", "not in self.ongoing"]
# source = "https://github.com/sgl-project/sglang/pull/38284"
# ///
"""A serving loop asks its tensor-parallel pair whether a prefetch may end, with an all-reduce on the pair's gloo group.
Rank 3 knows nothing of request r5, returns early and is already in the pair's broadcast of the next batch; the other pair is in a data-parallel barrier."""
import time

import torch
import torch.distributed as dist


class Prefetcher:
    def __init__(self, rank, group):
        self.rank, self.group, self.ongoing = rank, group, {}

    def start(self, request):
        if (self.rank, request) == (3, "r5"):
            return
        self.ongoing[request] = time.monotonic()

    def done(self, request):
        return time.monotonic() - self.ongoing[request] > 0

    def check(self, request):
        if request not in self.ongoing:
            return True
        flag = torch.tensor([int(self.done(request))])
        dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=self.group)
        if flag.item():
            del self.ongoing[request]
        return bool(flag.item())


class Scheduler:
    def __init__(self, rank):
        self.rank = rank
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        self.group = pairs[rank // 2]
        self.leader = rank // 2 * 2
        self.prefetcher = Prefetcher(rank, self.group)
        self.waiting = [f"r{i}" for i in range(9)]

    def next_batch(self):
        message = [self.waiting[0] if self.waiting else None]
        dist.broadcast_object_list(message, src=self.leader, group=self.group)
        return message[0]

    def loop(self):
        while True:
            request = self.next_batch()
            if request is None:
                return
            self.waiting.remove(request)
            self.prefetcher.start(request)
            while not self.prefetcher.check(request):
                time.sleep(0.01)


def main():
    dist.init_process_group("gloo")
    Scheduler(dist.get_rank()).loop()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
