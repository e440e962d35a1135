# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/vllm-project/vllm/issues/5084"
# ///
"""A leader with tensor-parallel workers and little traffic.

Between bursts the leader waits some seconds in its inbox while the workers are in the broadcast of the next command.
"""
import logging
import queue
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("server")


@dataclass
class Traffic:
    bursts: tuple = (4, 3, 5)
    pause: float = 6.5
    gap: float = 0.2


class Client(threading.Thread):
    def __init__(self, inbox, traffic):
        super().__init__(name="client", daemon=True)
        self.inbox, self.traffic = inbox, traffic

    def run(self):
        for burst in self.traffic.bursts:
            for i in range(burst):
                self.inbox.put(f"prompt {i}")
                time.sleep(self.traffic.gap)
            time.sleep(self.traffic.pause)
        self.inbox.put(None)


class Shard:
    def __init__(self, hidden=16):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.up = torch.randn(hidden, hidden)
        self.down = torch.randn(hidden, hidden)

    @torch.no_grad()
    def forward(self, prompt):
        x = torch.full((1, 16), float(len(prompt)))
        y = torch.relu(x @ self.up) @ self.down / self.world
        dist.all_reduce(y)
        return y.sum().item()


class Server:
    def __init__(self, shard, traffic):
        self.shard, self.inbox, self.answers = shard, queue.Queue(), []
        Client(self.inbox, traffic).start()

    def loop(self):
        while True:
            prompt = self.inbox.get()
            dist.broadcast_object_list([prompt], src=0)
            if prompt is None:
                return
            self.answers.append(self.shard.forward(prompt))


class Worker:
    def __init__(self, shard):
        self.shard, self.handled = shard, 0

    def loop(self):
        while True:
            box = [None]
            dist.broadcast_object_list(box, src=0)
            if box[0] is None:
                return
            try:
                self.shard.forward(box[0])
                self.handled += 1
            except ValueError as e:
                log.warning("%s", e)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    shard = Shard()
    server = Server(shard, Traffic()) if dist.get_rank() == 0 else Worker(shard)
    server.loop()
    dist.barrier()
    log.info("[rank %d] stopped", shard.rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
