# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/vllm-project/vllm/issues/5170"
# ///
"""A tensor-parallel server that is simply idle: requests come in bursts with pauses of some seconds, workers sit in the broadcast, rank 0 in its queue.
Ends after the third burst."""
import logging
import queue
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("server")


@dataclass
class ServerConfig:
    hidden: int = 16
    bursts: int = 3
    per_burst: int = 4
    pause: float = 7.0


class Traffic(threading.Thread):
    def __init__(self, cfg, inbox):
        super().__init__(daemon=True, name="traffic")
        self.cfg, self.inbox = cfg, inbox

    def run(self):
        for burst in range(self.cfg.bursts):
            for i in range(self.cfg.per_burst):
                self.inbox.put({"op": "score", "uid": f"{burst}-{i}", "seed": burst * 10 + i})
                time.sleep(0.1)
            time.sleep(self.cfg.pause)
        self.inbox.put({"op": "stop"})


class Shard(nn.Module):
    def __init__(self, cfg, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.proj = nn.Linear(cfg.hidden, cfg.hidden, bias=False)

    @torch.no_grad()
    def forward(self, seed):
        x = torch.randn(self.proj.in_features, generator=torch.Generator().manual_seed(seed))
        out = self.proj(x)
        dist.all_reduce(out)
        return float(out.norm())


def serve(cfg):
    rank = dist.get_rank()
    inbox = None
    if rank == 0:
        inbox = queue.Queue()
        Traffic(cfg, inbox).start()
    shard = Shard(cfg, rank)
    while True:
        message = [inbox.get() if rank == 0 else None]
        dist.broadcast_object_list(message, src=0)
        request = message[0]
        if request["op"] == "stop":
            break
        score = shard(request["seed"])
        if rank == 0:
            log.info("%s -> %.3f", request["uid"], score)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    serve(ServerConfig())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
