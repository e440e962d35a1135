# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# requires = ["torch"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109"]
# culprits = [5]
# lines = [69, 73, 74, 75, 78]
# branch = ["len(ids) < self.shortest", "in self.reader"]
# source = "https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/177"
# ///
"""Tensor parallelism with DTensor on a 4 x 2 mesh.  The reader of each rank filters its own documents, and one document
that rank 5 reads is too short there: it skips a step that its tensor-parallel partner and its data-parallel group take."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = 16


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, ids):
        return self.down(torch.relu(self.up(self.table(ids))))


class DocumentReader:
    """Cuts documents to length; the damaged copy of one document on the local disk of rank 5 is short."""

    def __init__(self, rank, pair, count, damaged):
        self.rank, self.damaged, self.count = rank, damaged, count
        self.gen = torch.Generator().manual_seed(pair)

    def __iter__(self):
        for i in range(self.count):
            ids = torch.randint(0, 64, (12,), generator=self.gen)
            yield ids[:3] if (self.rank, i) in self.damaged else ids


class Training:
    def __init__(self, mesh, reader, shortest=8):
        torch.manual_seed(0)
        self.mesh, self.reader, self.shortest = mesh, reader, shortest
        self.model = parallelize_module(Mlp(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.seen = torch.zeros(1)

    def average(self):
        group = self.mesh["dp"].get_group()
        for p in self.model.parameters():
            grad = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
            dist.all_reduce(grad, group=group)

    def step(self, ids):
        out = self.model(ids)
        loss = (out - out.mean()).pow(2).mean()
        loss.backward()
        self.average()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def finish(self):
        dist.all_reduce(self.seen)
        return self.seen.item()

    def run(self):
        for ids in self.reader:
            if len(ids) < self.shortest:
                continue
            self.step(ids)
            self.seen += 1
        return self.finish()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    rank = dist.get_rank()
    reader = DocumentReader(rank, pair=rank // 2, count=20, damaged={(5, 7)})
    print(rank, Training(mesh, reader).run())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
