# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201", "HD202", "HD105", "HD101"]
# culprits_any = [[2], [0, 2], [0], [2, 3]]
# lines = [42, 66, 88, 89, 98, 99, 106, 137]
# branch = ["rank == src", "if not batch", "not batch"]
# source = "https://github.com/lightseekorg/tokenspeed/pull/786"
# ///
import logging
import pickle
from dataclasses import dataclass, field
from datetime import timedelta
from typing import List

import torch
import torch.distributed as dist

logger = logging.getLogger("tokens")


@dataclass
class Layout:
    dp: int = 2
    tp: int = 2

    def tp_ranks(self, dp_rank):
        return list(range(dp_rank * self.tp, (dp_rank + 1) * self.tp))

    def coords(self, rank):
        return divmod(rank, self.tp)


@dataclass
class GenerateReq:
    uid: int
    prompt: List[int] = field(default_factory=list)


def broadcast_pyobj(data, rank, group, src):
    if rank == src:
        raw = torch.frombuffer(bytearray(pickle.dumps(data)), dtype=torch.uint8)
        size = torch.tensor([raw.numel() if data else 0])
        dist.broadcast(size, src=src, group=group)
        if data:
            dist.broadcast(raw, src=src, group=group)
        return data
    size = torch.tensor([0])
    dist.broadcast(size, src=src, group=group)
    if size.item() == 0:
        return []
    raw = torch.empty(size.item(), dtype=torch.uint8)
    dist.broadcast(raw, src=src, group=group)
    return pickle.loads(bytes(raw.tolist()))


def send_obj(obj, dst):
    raw = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    dist.send(torch.tensor([raw.numel()]), dst)
    dist.send(raw, dst)


def recv_obj(src):
    size = torch.tensor([0])
    dist.recv(size, src)
    raw = torch.empty(size.item(), dtype=torch.uint8)
    dist.recv(raw, src)
    return pickle.loads(bytes(raw.tolist()))


class Scheduler:
    def __init__(self, layout, rank, tp_group):
        self.layout = layout
        self.rank = rank
        self.dp_rank, self.tp_rank = layout.coords(rank)
        self.src = layout.tp_ranks(self.dp_rank)[0]
        self.tp_group = tp_group
        self.weight = torch.randn(64, 8)

    @property
    def is_leader(self):
        return self.tp_rank == 0

    def fetch(self, frontend):
        reqs = None
        if self.is_leader:
            reqs = frontend.next_for(self.dp_rank) if frontend else recv_obj(0)
        return broadcast_pyobj(reqs, self.tp_rank, self.tp_group, self.src)

    def forward(self, batch):
        h = torch.stack([self.weight[torch.tensor(r.prompt)].mean(0) for r in batch])
        dist.all_reduce(h, group=self.tp_group)
        return {r.uid: v.argmax().item() for r, v in zip(batch, h)}

    def run(self, frontend):
        while True:
            batch = self.fetch(frontend)
            if not batch:
                continue
            if batch[0].uid < 0:
                return
            out = self.forward(batch)
            if self.is_leader:
                if frontend:
                    frontend.finish(self.dp_rank, out)
                else:
                    send_obj(out, 0)


class Frontend:
    """Lives in the first process: hands requests round-robin to the attention-DP leaders."""

    def __init__(self, layout, total):
        self.layout = layout
        self.uid = 0
        self.total = total
        self.results = {}

    def _make(self, n):
        reqs = []
        for _ in range(n):
            reqs.append(GenerateReq(self.uid, [(self.uid * 7 + k) % 64 for k in range(5)]))
            self.uid += 1
        return reqs

    def next_for(self, dp_rank):
        done = self.uid >= self.total
        for d in range(1, self.layout.dp):
            leader = self.layout.tp_ranks(d)[0]
            send_obj([GenerateReq(-1)] if done else self._make(2), leader)
        return [GenerateReq(-1)] if done else self._make(2)

    def finish(self, dp_rank, out):
        self.results.update(out)
        for d in range(1, self.layout.dp):
            self.results.update(recv_obj(self.layout.tp_ranks(d)[0]))
        logger.info("answered %d/%d", len(self.results), self.total)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank = dist.get_rank()
    layout = Layout()
    groups = [dist.new_group(layout.tp_ranks(d)) for d in range(layout.dp)]
    dp_rank, _ = layout.coords(rank)
    scheduler = Scheduler(layout, rank, groups[dp_rank])
    frontend = Frontend(layout, total=64) if rank == 0 else None
    scheduler.run(frontend)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
