# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/108199"
# ///
"""The first step of a compiled model takes long on rank 0, which compiles with an empty cache (inductor calls g++), while
rank 1 runs eagerly and waits in the all_reduce of gradients."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-")
import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.kind = kind

    def forward(self, x):
        y = self.a(x)
        y = [torch.relu, torch.tanh, torch.sigmoid, nn.functional.gelu, nn.functional.silu][self.kind % 5](y)
        return x + self.b(y).softmax(-1) * (self.kind + 1)


def build(rank):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(16 + 0 * k, k) for k in range(1)))
    return torch.compile(model) if rank == 0 else model


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = build(rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(4):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    print("rank", rank, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
