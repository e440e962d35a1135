# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD202", "HD106"]
# culprits_any = [[1], [0], [0, 1], [0, 1, 2], [1, 2], [0, 2]]
# lines = [31, 53, 59, 66, 74, 86, 99, 101, 124, 125]
# source = "knowledge: pipeline stages resuming from different iterations (the reason of Megatron-LM's check that the loaded iterations agree)"
# ///
"""A three-stage pipeline that is stopped and resumed; activations travel with a tag for step and micro-batch."""
import argparse
import dataclasses
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

MICRO = 4
WIDTH = 12


@dataclasses.dataclass
class StageConfig:
    layers: int
    save_every: int
    keep: int = 2


CONFIG = {0: StageConfig(2, 4), 1: StageConfig(3, 3), 2: StageConfig(1, 4)}


class Stage:
    def __init__(self, index, count, folder):
        self.index, self.count, self.folder = index, count, folder
        self.config = CONFIG[index]
        torch.manual_seed(index)
        layers = [m for _ in range(self.config.layers) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.module = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        self.step = 0

    @property
    def first(self):
        return self.index == 0

    @property
    def last(self):
        return self.index == self.count - 1

    def tag(self, micro):
        return self.step * MICRO + micro

    def incoming(self, micro):
        if self.first:
            return torch.randn(4, WIDTH)
        x = torch.empty(4, WIDTH)
        dist.recv(x, src=self.index - 1, tag=self.tag(micro))
        return x.requires_grad_()

    def forward(self, micro):
        x = self.incoming(micro)
        y = self.module(x)
        if not self.last:
            dist.send(y.detach(), dst=self.index + 1, tag=self.tag(micro))
        return x, y

    def backward(self, micro, x, y):
        if self.last:
            y.square().mean().backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.index + 1, tag=self.tag(micro))
            y.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.index - 1, tag=self.tag(micro))

    def train_step(self):
        pending = [self.forward(micro) for micro in range(MICRO)]
        for micro, (x, y) in enumerate(pending):
            self.backward(micro, x, y)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.step % self.config.save_every == 0:
            self.save()

    def files(self):
        return sorted(self.folder.glob(f"stage{self.index}_*.pt"))

    def save(self):
        path = self.folder / f"stage{self.index}_{self.step:06d}.pt"
        torch.save({"module": self.module.state_dict(), "step": self.step}, path)
        for old in self.files()[: -self.config.keep]:
            old.unlink()

    def restore(self):
        newest = torch.load(self.files()[-1])
        self.module.load_state_dict(newest["module"])
        self.step = newest["step"]


def session(stage, until):
    while stage.step < until:
        stage.train_step()
        if stage.last:
            print(f"step {stage.step}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--second", type=int, default=30)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = pathlib.Path(tempfile.gettempdir()) / f"stages-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    dist.barrier()
    session(Stage(rank, world, folder), args.first)
    dist.barrier()
    resumed = Stage(rank, world, folder)
    resumed.restore()
    session(resumed, args.second)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
