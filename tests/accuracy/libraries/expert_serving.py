# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106"]
# culprits = [1]
# lines = [100, 101, 88, 117, 59, 125, 128, 91]
# branch = ["plan.tokens", "not plan.tokens"]
# source = "https://github.com/vllm-project/vllm/pull/51984"
# ///
"""Data-parallel serving of a mixture of experts: each rank schedules its own requests, the expert layer spans all ranks."""
import logging
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

log = logging.getLogger("serve")
WIDTH, CAPACITY = 32, 8


@dataclass
class Request:
    rid: str
    prompt: int
    answer: int
    done: int = 0
    blocks: int = 0
    remote: bool = False
    polls: int = 0


@dataclass
class Plan:
    tokens: int = 0
    running: list = field(default_factory=list)


class KVTransfer:
    """Prefilled elsewhere: the blocks arrive some polls after the request."""

    def arrived(self, req: Request) -> bool:
        req.polls += 1
        return req.polls > 3


class Scheduler:
    def __init__(self, requests, blocks: int = 64):
        self.waiting, self.running = deque(requests), []
        self.free, self.transfer = blocks, KVTransfer()

    def unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def schedule(self) -> Plan:
        if self.waiting and self.free >= self.need(self.waiting[0]) and len(self.running) < CAPACITY:
            head = self.waiting[0]
            if not head.remote or self.transfer.arrived(head):
                self.waiting.popleft()
                head.blocks = self.need(head)
                self.free -= head.blocks
                self.running.append(head)
        return Plan(tokens=len(self.running), running=list(self.running))

    @staticmethod
    def need(req: Request) -> int:
        return (req.prompt + req.answer) // 16 + 1

    def finish(self, plan: Plan) -> None:
        for req in plan.running:
            req.done += 1
            if req.done == req.answer:
                self.running.remove(req)
                self.free += req.blocks


class ExpertLayer:
    """Every rank owns one expert; tokens of all ranks are gathered, the answers are summed."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        gen = torch.Generator().manual_seed(self.rank)
        self.expert = torch.randn(WIDTH, WIDTH, generator=gen) / WIDTH**0.5

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        pooled = torch.zeros(self.world, CAPACITY, WIDTH)
        dist.all_gather_into_tensor(pooled.view(-1), x.reshape(-1))
        route = pooled.sum(-1).mul(100).long() % self.world == self.rank
        out = (pooled @ self.expert) * route.unsqueeze(-1)
        dist.all_reduce(out)
        return out[self.rank]


class ModelRunner:
    def __init__(self):
        self.layer = ExpertLayer()

    def execute(self, plan: Plan) -> list:
        if not plan.tokens:
            return []
        x = torch.zeros(CAPACITY, WIDTH)
        x[: plan.tokens] = 1.0 / (1 + torch.arange(plan.tokens)).unsqueeze(-1)
        return self.layer(x)[: plan.tokens].argmax(-1).tolist()

    def dummy(self) -> None:
        self.layer(torch.zeros(CAPACITY, WIDTH))


class EngineCore:
    def __init__(self, requests, sync_every: int = 8):
        self.scheduler, self.runner = Scheduler(requests), ModelRunner()
        self.sync_every, self.step_no = sync_every, 0

    def anyone_busy(self) -> bool:
        flag = torch.tensor([int(self.scheduler.unfinished())])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def loop(self) -> None:
        while True:
            self.step_no += 1
            if self.scheduler.unfinished():
                plan = self.scheduler.schedule()
                self.runner.execute(plan)
                self.scheduler.finish(plan)
            else:
                self.runner.dummy()
            if self.step_no % self.sync_every == 0 and not self.anyone_busy():
                return


def traffic(rank: int) -> list[Request]:
    gen = torch.Generator().manual_seed(40 + rank)
    load = [Request(f"r{rank}-{i}", *torch.randint(5, 60, (2,), generator=gen).tolist()) for i in range(10 + rank)]
    if rank % 2:  # these ranks also take requests whose prompt was prefilled by another pool
        load.insert(2 if rank == 3 else 0, Request(f"r{rank}-remote", 48, 20, remote=True))
    return load


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    EngineCore(traffic(rank)).loop()
    log.info("rank %d: all requests answered", rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
