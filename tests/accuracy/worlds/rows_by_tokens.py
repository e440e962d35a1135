"""A row of the mesh leaves the training loop once its own token budget is spent.

Eight ranks, data parallel by four, tensor parallel by two. Each row counts the tokens of its own batches; row 1 has
long documents, ends earlier than the others and goes on to the evaluation that all rows share, while the other rows
reduce the gradients of one more step with it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# culprits = [2, 3]
# cause = "HD102"
# lines = [59, 67]
# branch = ["if self.spent >= BUDGET:"]
# mesh = { dp = 4, tp = 2 }
# replicas = "dp"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"
BUDGET = 4000
STEPS = 24


class Rows:
    """Documents of one data-parallel row: lengths differ between rows, as documents do."""

    def __init__(self, row, seed):
        self.generator = torch.Generator().manual_seed(seed + row)
        self.longest = 260 if row == 1 and not FIXED else 200

    def batch(self):
        length = int(torch.randint(self.longest - 20, self.longest, (), generator=self.generator))
        return torch.randn(2, 8, generator=self.generator), length


class Trainer:
    def __init__(self, mesh):
        self.tp, self.dp = mesh.get_group("tp"), mesh.get_group("dp")
        self.rows = Rows(mesh.get_local_rank("dp"), seed=5)
        self.shard = torch.randn(8, 8, generator=torch.Generator().manual_seed(mesh.get_local_rank("tp")))
        self.spent = 0
        self.best = None

    def forward(self, batch):
        out = batch @ self.shard
        dist.all_reduce(out, group=self.tp)
        return out

    def step(self):
        batch, length = self.rows.batch()
        loss = self.forward(batch).square().mean()
        gradient = torch.full((8, 8), float(loss))
        dist.all_reduce(gradient, group=self.dp)
        self.shard -= 1e-4 * gradient / dist.get_world_size(self.dp)
        self.spent += 2 * length
        if self.best is None or loss < self.best:
            self.best = loss

    def train(self):
        for _ in range(STEPS):
            if self.spent >= BUDGET:
                break
            self.step()

    def evaluate(self):
        score = self.best.clone()
        dist.all_reduce(score, op=dist.ReduceOp.MIN)
        return score


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    trainer = Trainer(mesh)
    trainer.train()
    score = trainer.evaluate()
    if dist.get_rank() == 0:
        print("best", float(score))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
