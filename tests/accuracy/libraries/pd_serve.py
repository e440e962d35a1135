# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD305", "HD202"]
# culprits = [1]
# lines = [50, 87, 89, 90, 92, 93, 105]
# branch = ["len(req.tokens) > self.limits.max_prefill"]
# source = "https://github.com/sgl-project/sglang/pull/28651"
# ///
"""Serving with separate prefill and decode workers: rank 0 routes requests, rank 1 computes key/value caches, ranks 2 and 3 fetch them and decode."""
import json
import logging
import os
import random
from dataclasses import asdict, dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("pd")


@dataclass
class Request:
    rid: int
    tokens: list
    decoder: int
    max_new: int = 6


@dataclass
class Limits:
    max_prefill: int = 192
    hidden: int = 24
    decoders: list = field(default_factory=lambda: [2, 3])


class Mailbox:
    """Small messages through the job's store; tensors go point to point."""

    def __init__(self, store):
        self.store = dist.PrefixStore("pd", store)

    def post(self, key, value):
        self.store.set(key, json.dumps(value))

    def fetch(self, key):
        self.store.wait([key], timedelta(minutes=30))
        return json.loads(self.store.get(key))


class Router:
    def __init__(self, box, limits):
        self.box, self.limits = box, limits

    def trace(self, n):
        rng = random.Random(77)
        for rid in range(n):
            length = int(min(rng.paretovariate(1.1) * 24, 400))
            yield Request(rid, [rng.randrange(500) for _ in range(length)], self.limits.decoders[rid % 2])

    def run(self, n):
        plan = {d: [] for d in self.limits.decoders}
        requests = list(self.trace(n))
        for req in requests:
            plan[req.decoder].append(req.rid)
        self.box.post("prefill/queue", [asdict(r) for r in requests])
        for decoder, rids in plan.items():
            self.box.post(f"decode/{decoder}", rids)
        log.info("routed %d requests, longest %d", n, max(len(r.tokens) for r in requests))


class PrefillWorker:
    def __init__(self, box, limits):
        self.box, self.limits = box, limits
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(500, limits.hidden)
        self.kv = torch.nn.Linear(limits.hidden, 2 * limits.hidden)
        self.rejected = []

    @torch.no_grad()
    def run(self):
        for raw in self.box.fetch("prefill/queue"):
            req = Request(**raw)
            if len(req.tokens) > self.limits.max_prefill:
                log.warning("request %d: %d tokens, over the limit, dropped", req.rid, len(req.tokens))
                self.rejected.append(req.rid)
                continue
            cache = self.kv(self.embed(torch.tensor(req.tokens))).contiguous()
            self.box.post(f"room/{req.rid}", {"shape": list(cache.shape), "max_new": req.max_new})
            dist.send(cache, dst=req.decoder, tag=req.rid)
        log.info("prefill done, %d dropped", len(self.rejected))


class DecodeWorker:
    def __init__(self, box, limits, rank):
        self.box, self.limits, self.rank = box, limits, rank
        self.finished = {}

    @torch.no_grad()
    def run(self):
        for rid in self.box.fetch(f"decode/{self.rank}"):
            meta = self.box.fetch(f"room/{rid}")
            cache = torch.empty(meta["shape"])
            dist.recv(cache, src=1, tag=rid)
            k, v = cache.chunk(2, dim=-1)
            state = v[-1]
            for _ in range(meta["max_new"]):
                state = torch.softmax(state @ k.T, -1) @ v
            self.finished[rid] = state.norm().item()
        log.info("decoded %d", len(self.finished))


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = Mailbox(dist.distributed_c10d._get_default_store())
    limits = Limits()
    if rank == 0:
        Router(box, limits).run(40)
    elif rank == 1:
        PrefillWorker(box, limits).run()
    else:
        DecodeWorker(box, limits, rank).run()
    dist.barrier()
    log.info("drained")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
