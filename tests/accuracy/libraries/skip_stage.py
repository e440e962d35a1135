# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201", "HD202"]
# culprits = [0]
# culprits_any = [[0], [3], [0, 3], [0, 1, 2, 3]]
# lines = [58, 63, 64, 68, 70]
# source = "https://github.com/pytorch/PiPPy/issues/969"
# ///
"""A forward-only pipeline of four stages with one long skip connection."""
import logging
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("pipe")


@dataclass
class Edge:
    peer: int
    width: int
    kind: str = "chain"


@dataclass
class StagePlan:
    index: int
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)


def build_plans(n: int, width: int, skips: dict) -> list:
    plans = [StagePlan(i) for i in range(n)]
    for src, dst in skips.items():
        plans[src].outputs.append(Edge(dst, width, "skip"))
    for i in range(n - 1):
        plans[i].outputs.append(Edge(i + 1, width))
        plans[i + 1].inputs.append(Edge(i, width))
    for src, dst in skips.items():
        plans[dst].inputs.append(Edge(src, width, "skip"))
    return plans


class Stage(torch.nn.Module):
    def __init__(self, plan: StagePlan, width: int, rows: int):
        super().__init__()
        self.plan, self.rows = plan, rows
        self.lin = torch.nn.Linear(width * max(1, len(plan.inputs)), width)

    def receive(self) -> list:
        got = []
        for edge in self.plan.inputs:
            buf = torch.empty(self.rows, edge.width)
            dist.recv(buf, src=edge.peer)
            got.append(buf)
        return got

    def deliver(self, out: torch.Tensor) -> None:
        for edge in self.plan.outputs:
            dist.send(out, dst=edge.peer)

    @torch.no_grad()
    def step(self, x: torch.Tensor | None) -> torch.Tensor:
        parts = self.receive() if self.plan.inputs else [x]
        out = torch.tanh(self.lin(torch.cat(parts, dim=1)))
        self.deliver(out)
        return out


class Runner:
    def __init__(self, width: int = 512, rows: int = 256, micro: int = 4):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.width, self.rows, self.micro = width, rows, micro

    def warm_up(self) -> None:
        plain = build_plans(self.world, self.width, skips={})
        stage = Stage(plain[self.rank], self.width, self.rows)
        for _ in range(self.micro):
            stage.step(torch.randn(self.rows, self.width))
        dist.barrier()
        log.info("rank %d: plain chain ran %d micro batches", self.rank, self.micro)

    def run(self, steps: int) -> None:
        plans = build_plans(self.world, self.width, skips={0: self.world - 1})
        stage = Stage(plans[self.rank], self.width, self.rows)
        for step in range(steps):
            for m in range(self.micro):
                out = stage.step(torch.randn(self.rows, self.width))
            norm = out.norm().reshape(1)
            dist.all_reduce(norm)
            if self.rank == 0:
                log.info("step %d norm %.2f", step, norm.item())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    runner = Runner()
    runner.warm_up()
    runner.run(steps=20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
