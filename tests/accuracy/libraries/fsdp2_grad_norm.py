# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torch"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [42, 46, 56, 59, 81]
# branch = ["self.enabled"]
# source = "https://github.com/radixark/miles_diffusion/pull/35"
# ///
"""The dashboard of an FSDP2 job is enabled on rank 0 only and writes the norm of every gradient every few steps.  The
gradients are DTensors: full_tensor() of a norm reduces it over all ranks."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.mix(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def grad_norms(model):
    norms = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            norms[name] = parameter.grad.norm().full_tensor().item()
    return norms


class Dashboard:
    def __init__(self, enabled, every):
        self.enabled, self.every = enabled, every
        self.lines = []

    def write(self, step, model, loss):
        if not self.enabled:
            return
        if step % self.every == 0:
            self.lines.append((step, loss.item(), grad_norms(model)))


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(steps):
    torch.manual_seed(0)
    model = shard(Net())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    board = Dashboard(enabled=dist.get_rank() == 0, every=8)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        x = torch.randn(8, 32, generator=gen)
        y = torch.randint(0, 4, (8,), generator=gen)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        board.write(step, model, loss)
        optimizer.step()
        optimizer.zero_grad()
    return board.lines


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    print(train(40))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
