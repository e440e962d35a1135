# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201"]
# culprits_any = [[1, 2], [2], [1], [0, 1, 2], [1, 2, 3], [0, 1, 2, 3]]
# lines = [62, 66, 70, 74, 89, 104]
# source = "https://github.com/pytorch/pytorch/issues/172668"
# ///
import logging
import re
from collections import namedtuple
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("pp")

Action = namedtuple("Action", "kind mb")
PATTERN = re.compile(r"(SF|RF|SB|RB|F|B)(\d+)")

WARM = {
    0: "F0 SF0 F1 SF1 RB0 B0 RB1 B1",
    1: "RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1",
    2: "RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1",
    3: "RF0 F0 RF1 F1 B0 SB0 B1 SB1",
}
STEADY = {
    0: "F0 SF0 F1 SF1 F2 SF2 RB0 B0 RB1 B1 RB2 B2",
    1: "RF0 F0 SF0 RF1 F1 SF1 RF2 F2 SF2 RB0 B0 SB0 RB1 B1 SB1 RB2 B2 SB2",
    2: "RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RF2 F2 SF2 RB1 B1 SB1 RB2 B2 SB2",
    3: "RF0 F0 RF1 F1 B0 SB0 RF2 F2 B1 SB1 B2 SB2",
}


def parse(text):
    return [Action(k, int(m)) for k, m in PATTERN.findall(text)]


class Stage(nn.Module):
    def __init__(self, index, last):
        super().__init__()
        self.index, self.last = index, last
        self.body = nn.Sequential(nn.Linear(256, 256), nn.Tanh())

    def forward(self, x):
        y = self.body(x)
        return y.pow(2).mean() if self.last else y


class ScheduleRuntime:
    """Executes the actions of one pipeline rank in the order of its table row."""

    def __init__(self, stage, rank, world, shape):
        self.stage, self.rank, self.world, self.shape = stage, rank, world, shape
        self.inputs, self.outputs, self.grads = {}, {}, {}
        self.table = {"SF": self.send_f, "RF": self.recv_f, "SB": self.send_b, "RB": self.recv_b, "F": self.fwd, "B": self.bwd}

    def send_f(self, mb):
        dist.send(self.outputs[mb].detach(), self.rank + 1)

    def recv_f(self, mb):
        buf = torch.empty(self.shape)
        dist.recv(buf, self.rank - 1)
        self.inputs[mb] = buf.requires_grad_()

    def send_b(self, mb):
        dist.send(self.inputs[mb].grad, self.rank - 1)

    def recv_b(self, mb):
        buf = torch.empty(self.shape)
        dist.recv(buf, self.rank + 1)
        self.grads[mb] = buf

    def fwd(self, mb):
        x = self.inputs.get(mb)
        if x is None:
            x = torch.randn(self.shape)
        self.outputs[mb] = self.stage(x)

    def bwd(self, mb):
        self.outputs[mb].backward(self.grads.get(mb))

    def step(self, actions):
        self.inputs.clear(), self.outputs.clear(), self.grads.clear()
        for act in actions:
            self.table[act.kind](act.mb)


class Trainer:
    def __init__(self, runtime, rows):
        self.runtime = runtime
        self.rows = rows
        self.opt = torch.optim.SGD(runtime.stage.parameters(), lr=0.01)

    def plan(self, batch_rows, micro=64):
        return self.rows[-(-batch_rows // micro)]

    def fit(self, sizes):
        for n, size in enumerate(sizes):
            self.opt.zero_grad()
            self.runtime.step(self.plan(size))
            self.opt.step()
            if self.runtime.rank == 0:
                log.info("batch %d (%d rows) done", n, size)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = {2: parse(WARM[rank]), 3: parse(STEADY[rank])}
    stage = Stage(rank, last=rank == world - 1)
    runtime = ScheduleRuntime(stage, rank, world, shape=(64, 256))
    Trainer(runtime, rows).fit([128, 128, 120, 128, 100, 192, 192, 128])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
