# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [0]
# lines = [54, 55, 101, 104, 105, 117]
# branch = ["need > len(self.free)"]
# source = "https://github.com/vllm-project/vllm/issues/5531"
# ///
"""Tensor parallel serving: rank 0 broadcasts a command and then takes KV blocks. For a long prompt no blocks are left: rank 0 raises
after the broadcast, the serve loop catches it and broadcasts the next command while the followers are in the layer's all_reduce."""
import logging
import random
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("serve")


@dataclass
class ServeConfig:
    vocab: int = 40
    width: int = 16
    layers: int = 3
    block_tokens: int = 4
    blocks: int = 12
    requests: int = 30
    max_retries: int = 2


class NoFreeBlocks(RuntimeError):
    pass


@dataclass
class Request:
    id: int
    prompt: list
    new_tokens: int
    retries: int = 0


class BlockTable:
    def __init__(self, cfg):
        self.cfg, self.free, self.held = cfg, deque(range(cfg.blocks)), {}

    def allocate(self, request):
        need = -(-(len(request.prompt) + request.new_tokens) // self.cfg.block_tokens)
        if need > len(self.free):
            raise NoFreeBlocks(f"request {request.id} needs {need} blocks, {len(self.free)} free")
        self.held[request.id] = [self.free.popleft() for _ in range(need)]

    def release(self, request):
        self.free.extend(self.held.pop(request.id, []))


class ParallelMLP(nn.Module):
    """Column then row parallel; the row parallel half ends with an all_reduce."""

    def __init__(self, width, rank, world):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width // world), nn.Linear(2 * width // world, width)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        dist.all_reduce(y)
        return x + y


class Runner:
    def __init__(self, cfg, rank, world):
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(cfg.vocab, cfg.width), nn.Linear(cfg.width, cfg.vocab)
        torch.manual_seed(rank + 1)
        self.layers = nn.ModuleList(ParallelMLP(cfg.width, rank, world) for _ in range(cfg.layers))

    @torch.no_grad()
    def generate(self, prompt, count):
        tokens = list(prompt)
        for _ in range(count):
            h = self.embed(torch.tensor(tokens)).mean(0)
            for layer in self.layers:
                h = layer(h)
            tokens.append(int(self.head(h).argmax()))
        return tokens[len(prompt) :]


class Leader:
    def __init__(self, cfg, runner):
        self.cfg, self.runner, self.table = cfg, runner, BlockTable(cfg)
        rng = random.Random(9)
        self.inbox = deque(Request(i, [rng.randrange(cfg.vocab) for _ in range(52 if i == 11 else rng.randint(3, 16))], rng.randint(3, 6))
                           for i in range(cfg.requests))

    def tell(self, command):
        dist.broadcast_object_list([command], src=0)

    def handle(self, request):
        self.tell({"op": "generate", "prompt": request.prompt, "count": request.new_tokens})
        self.table.allocate(request)
        try:
            return self.runner.generate(request.prompt, request.new_tokens)
        finally:
            self.table.release(request)

    def serve(self):
        while self.inbox:
            request = self.inbox.popleft()
            try:
                answer = self.handle(request)
                log.info("request %d: %d tokens", request.id, len(answer))
            except NoFreeBlocks as e:
                log.warning("%s, back to the queue", e)
                request.retries += 1
                if request.retries <= self.cfg.max_retries:
                    self.inbox.append(request)
        self.tell({"op": "stop"})


class Follower:
    def __init__(self, runner):
        self.runner = runner

    def serve(self):
        while True:
            box = [None]
            dist.broadcast_object_list(box, src=0)
            command = box[0]
            if command["op"] == "stop":
                return
            self.runner.generate(command["prompt"], command["count"])


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = ServeConfig()
    runner = Runner(cfg, rank, world)
    (Leader(cfg, runner) if rank == 0 else Follower(runner)).serve()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
