"""The parameters of the next layer are gathered while the current one computes.

As sharded training does it: the all_gather of layer n + 1 is issued before the one of layer n is waited for. Rank 1
skips a layer whose expert got no tokens, and with it the all_gather that all ranks need. (A loop that ended a round
early would look the same, so no cause is demanded.)
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# culprits = [1]
# lines = [37]
# code = ["return dist.all_gather_into_tensor(whole, self.shard, async_op=True), whole"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


LAYERS = 5


class Layers:
    def __init__(self, rank):
        self.rank = rank
        self.shard = torch.ones(8)

    def gather(self, layer, step):
        whole = torch.empty(8 * dist.get_world_size())
        if self.is_empty(layer, step):
            return None, whole
        return dist.all_gather_into_tensor(whole, self.shard, async_op=True), whole

    def is_empty(self, layer, step):
        return self.rank == 1 and (layer, step) == (3, 2) and not FIXED

    def forward(self, step):
        following = self.gather(0, step)
        for layer in range(LAYERS):
            handle, whole = following
            if layer + 1 < LAYERS:
                following = self.gather(layer + 1, step)
            if handle is not None:
                handle.wait()
            whole.sum()


def train(rank):
    layers = Layers(rank)
    for step in range(5):
        layers.forward(step)
        dist.all_reduce(torch.ones(2))


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
