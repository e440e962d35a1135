# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [3]
# lines = [49, 50, 67, 69, 76, 77, 80, 102, 123]
# branch = ["req.rid not in self.ongoing", "need > self.free", "self.host.reserve(need)"]
# source = "https://github.com/sgl-project/sglang/pull/38268"
# ///
"""A tensor-parallel serving loop with a hierarchical prefix cache.

A prefetch is registered only where host memory suffices. Rank 3, whose host pool also holds the draft model's pages, refuses
one; its progress check then says "done" without the all_reduce of the others.
"""
import collections
import logging
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("serve")


@dataclass
class Request:
    rid: str
    prompt: int
    prefix: int
    new_tokens: int = 3
    output: list = field(default_factory=list)


@dataclass
class ServeConfig:
    host_pages: int = 400
    draft_pages: int = 130
    hidden: int = 16
    vocab: int = 64
    max_batch: int = 3


class HostPool:
    def __init__(self, pages):
        self.free = pages

    def reserve(self, need):
        if need > self.free:
            return False
        self.free -= need
        return True

    def release(self, pages):
        self.free += pages


class PrefixCache:
    def __init__(self, cfg, group, rank):
        self.group, self.rank = group, rank
        self.host = HostPool(cfg.host_pages - (cfg.draft_pages if rank == dist.get_world_size() - 1 else 0))
        self.ongoing = {}
        self.resident = collections.OrderedDict()

    def prefetch(self, req):
        need = req.prefix - self.resident.get(req.rid, 0)
        if need <= 0 or not self.host.reserve(need):
            return
        self.ongoing[req.rid] = [0, need]

    def pump(self):
        for state in self.ongoing.values():
            state[0] = min(state[1], state[0] + 60 + 5 * self.rank)

    def prefetch_done(self, req):
        if req.rid not in self.ongoing:
            return True
        done, need = self.ongoing[req.rid]
        ready = torch.tensor([int(done >= need)])
        dist.all_reduce(ready, op=dist.ReduceOp.MIN, group=self.group)
        if not ready.item():
            return False
        del self.ongoing[req.rid]
        self.resident[req.rid] = need
        return True

    def finish(self, req):
        self.host.release(self.resident.pop(req.rid, 0) // 2)


class ShardedModel:
    def __init__(self, cfg, group, rank, world):
        torch.manual_seed(0)
        self.emb = torch.randn(cfg.vocab, cfg.hidden)
        self.shard = torch.randn(cfg.hidden, cfg.vocab).chunk(world, dim=1)[rank].contiguous()
        self.group, self.world = group, world

    @torch.no_grad()
    def decode(self, ids):
        local = self.emb[ids] @ self.shard
        parts = [torch.empty_like(local) for _ in range(self.world)]
        dist.all_gather(parts, local, group=self.group)
        return torch.cat(parts, dim=1).argmax(-1).tolist()


class Scheduler:
    def __init__(self, cfg, traffic):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(list(range(self.world)), timeout=timedelta(minutes=30))
        self.cache = PrefixCache(cfg, self.group, self.rank)
        self.model = ShardedModel(cfg, self.group, self.rank, self.world)
        self.waiting, self.running, self.traffic, self.served = [], [], traffic, 0

    def receive(self, tick):
        box = [self.traffic.get(tick, []) if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        for req in box[0]:
            self.cache.prefetch(req)
            self.waiting.append(req)

    def admit(self):
        room = self.cfg.max_batch - len(self.running)
        ready = [r for r in self.waiting[:room] if self.cache.prefetch_done(r)]
        for req in ready:
            self.waiting.remove(req)
            self.running.append(req)

    def step(self):
        if not self.running:
            return
        tokens = self.model.decode([(r.output or [r.prompt])[-1] % self.cfg.vocab for r in self.running])
        for req, token in zip(list(self.running), tokens):
            req.output.append(token)
            if len(req.output) >= req.new_tokens:
                self.running.remove(req)
                self.cache.finish(req)
                self.served += 1

    def loop(self, ticks):
        for tick in range(ticks):
            self.receive(tick)
            self.cache.pump()
            self.admit()
            self.step()
            if self.rank == 0 and tick % 4 == 0:
                log.info("tick %d: %d running, %d waiting, %d served", tick, len(self.running), len(self.waiting), self.served)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    traffic = {0: [Request("a1", 5, 80)], 2: [Request("a2", 9, 120)], 9: [Request("b1", 3, 90), Request("b2", 4, 150)],
               13: [Request("c1", 7, 60)], 30: [Request("d1", 2, 40)]}
    Scheduler(ServeConfig(), traffic).loop(40)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
