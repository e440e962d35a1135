# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD113", "HD201", "HD202"]
# culprits_any = [[0], [0, 1]]
# lines = [70, 73, 75, 95, 96, 97]
# source = "sgl-project/sglang#24687 (PR #24962)"
# ///
"""A pipeline-parallel inference server: the first stage takes requests and hands them down, stage by stage."""
import argparse
import collections
import logging
import os
import pickle

import torch
import torch.distributed as dist

log = logging.getLogger("serve")


class Mailbox:
    """What clients have asked for, in the order in which it came."""

    def __init__(self, generations, every):
        self.waiting = collections.deque()
        for number in range(generations):
            self.waiting.append({"id": number, "kind": "generate", "length": 4 + number % 5})
            if number % every == every - 1:
                self.waiting.append({"id": number, "kind": "flush_cache"})
        self.waiting.append({"id": -1, "kind": "quit"})

    def poll(self, limit):
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]


def send_object(obj, peer):
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), dst=peer)
    dist.send(data, dst=peer)


def receive_object(peer):
    size = torch.zeros(1, dtype=torch.long)
    dist.recv(size, src=peer)
    data = torch.empty(int(size), dtype=torch.uint8)
    dist.recv(data, src=peer)
    return pickle.loads(data.numpy().tobytes())


class StageServer:
    def __init__(self, rank, world, mailbox):
        self.rank, self.world, self.mailbox = rank, world, mailbox
        self.layer = torch.nn.Linear(16, 16)
        self.cache, self.running, self.served = {}, True, 0

    @property
    def first(self):
        return self.rank == 0

    @property
    def last(self):
        return self.rank == self.world - 1

    def take(self):
        return self.mailbox.poll(2) if self.first else receive_object(self.rank - 1)

    def hand_down(self, requests):
        if not self.last:
            send_object(requests, self.rank + 1)

    def control(self, request):
        if request["kind"] == "flush_cache":
            self.cache.clear()
            dist.barrier()
        elif request["kind"] == "quit":
            self.running = False

    @torch.no_grad()
    def forward(self, request):
        hidden = torch.ones(1, 16)
        if not self.first:
            dist.recv(hidden, src=self.rank - 1)
        for _ in range(request["length"]):
            hidden = torch.tanh(self.layer(hidden))
        if not self.last:
            dist.send(hidden, dst=self.rank + 1)
        self.cache[request["id"]] = hidden
        self.served += 1

    def loop(self):
        while self.running:
            requests = self.take()
            for request in requests:
                if request["kind"] != "generate":
                    self.control(request)
            self.hand_down(requests)
            for request in requests:
                if request["kind"] == "generate":
                    self.forward(request)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--flush-every", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    server = StageServer(rank, world, Mailbox(args.generations, args.flush_every) if rank == 0 else None)
    server.loop()
    log.info("served %d requests", server.served)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
