# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD508", "HD305"]
# culprits = [1]
# culprits_any = [[0, 2]]
# lines = [69, 76, 79, 84, 101, 102, 104, 106]
# branch = ["req.wave==self.wave", "self.store.check([key])", "self.start_seen()", "self.running"]
# watch = "--give-up-after 8"
# source = "https://github.com/vllm-project/vllm/pull/16277"
# ///
"""Three data-parallel engines with shared experts: all step together while any of them has requests, else they idle."""
import logging
import time
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("dp")


@dataclass
class Request:
    ident: str
    tokens: int
    arrives: float
    wave: int = 0
    done: int = 0


TRAFFIC = {
    0: [Request("a0", 9, 0.0), Request("a1", 4, 0.0)],
    1: [Request("b0", 3, 0.0), Request("b1", 6, 6.0)],
    2: [Request("c0", 14, 0.0)],
}


class Frontend:
    """Hands out the requests of one engine when they are due, stamped with the wave the client knew."""

    def __init__(self, requests):
        self.pending = deque(sorted(requests, key=lambda r: r.arrives))
        self.began = None

    def due(self):
        out = []
        self.began = self.began or time.monotonic()
        while self.pending and time.monotonic() - self.began >= self.pending[0].arrives:
            out.append(self.pending.popleft())
        return out


class Engine:
    sync_every = 4

    def __init__(self, rank, store, frontend):
        self.rank, self.store, self.frontend = rank, store, frontend
        self.active = []
        self.wave = 0
        self.running = False
        self.steps = 0
        self.expert = torch.nn.Linear(32, 32)

    def start_seen(self):
        key = f"start/{self.wave}"
        return self.store.check([key])

    def admit(self):
        for req in self.frontend.due():
            self.active.append(req)
            if self.running:
                continue
            if req.wave == self.wave:
                self.store.set(f"start/{self.wave}", str(self.rank))
            log.info("engine %d takes %s in wave %d", self.rank, req.ident, self.wave)
            self.running = True

    def step(self):
        hidden = torch.randn(4, 32) if self.active else torch.zeros(4, 32)
        hidden = self.expert(hidden).detach()
        dist.all_reduce(hidden)
        for req in self.active:
            req.done += 1
        self.active = [r for r in self.active if r.done < r.tokens]
        self.steps += 1
        if self.steps % self.sync_every == 0:
            flag = torch.tensor(float(bool(self.active)))
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if not flag.item():
                self.running = False
                self.wave += 1
                log.info("engine %d idles, next wave %d", self.rank, self.wave)

    def serve(self, waves):
        while self.wave < waves:
            self.admit()
            if not self.running:
                if self.start_seen():
                    self.running = True
                else:
                    time.sleep(0.02)
                continue
            self.step()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.PrefixStore("dp-coord", dist.distributed_c10d._get_default_store())
    engine = Engine(rank, store, Frontend(TRAFFIC[rank % len(TRAFFIC)]))
    dist.barrier()
    engine.serve(waves=2)
    log.info("engine %d ran %d steps", rank, engine.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
