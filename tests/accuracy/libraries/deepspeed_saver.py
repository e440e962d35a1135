# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["deepspeed"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [63, 65, 84]
# branch = ["self.rank == 0", "self.due(step)"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/2993"
# ///
"""A DeepSpeed ZeRO-1 job saves its checkpoint on rank 0 only, as one would with DDP.  save_checkpoint has barriers that
all ranks must enter; rank 1 is in its next backward."""
import os
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1, "overlap_comm": False},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000000,
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, width)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class PeriodicSaver:
    """Writes a checkpoint every few steps."""

    def __init__(self, rank, folder, every):
        self.rank, self.folder, self.every = rank, folder, every
        self.tags = []

    def due(self, step):
        return step > 0 and step % self.every == 0

    def after_step(self, step, engine):
        if self.rank == 0 and self.due(step):
            tag = f"step{step}"
            engine.save_checkpoint(self.folder, tag=tag)
            self.tags.append(tag)


class Trainer:
    def __init__(self):
        deepspeed.init_distributed("gloo")
        torch.manual_seed(0)
        net = Net()
        self.engine, _, _, _ = deepspeed.initialize(
            model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.01), config=CONFIG)
        self.saver = PeriodicSaver(dist.get_rank(), tempfile.mkdtemp(prefix="ds-"), every=6)

    def run(self, steps):
        for step in range(steps):
            batch = torch.randn(4, 32)
            loss = (self.engine(batch) - batch).pow(2).mean()
            self.engine.backward(loss)
            self.engine.step()
            self.saver.after_step(step, self.engine)
        print("finished")


def main():
    Trainer().run(40)


if __name__ == "__main__":
    main()
