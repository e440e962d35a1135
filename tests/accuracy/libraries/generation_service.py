# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD103", "HD106", "HD101"]
# culprits = [0]
# lines = [55, 67, 72, 74, 85, 90, 91, 107, 111]
# branch = ["self.is_leader and len(ids) + request.max_new_tokens > self.cfg.context", "len(ids) + request.max_new_tokens > self.cfg.context", "except ValueError"]
# source = "https://github.com/NVIDIA/TensorRT-LLM/issues/16342"
# ///
"""Tensor-parallel text generation service: rank 0 takes requests, the other ranks follow its commands."""
import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from itertools import count

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

log = logging.getLogger("service")


@dataclass
class ServiceConfig:
    vocab: int = 64
    width: int = 24
    context: int = 48


@dataclass
class Request:
    prompt: str
    max_new_tokens: int = 4
    uid: int = field(default_factory=count().__next__)


class ShardedHead:
    """Column-parallel projection, partial logits summed over the ranks."""

    def __init__(self, cfg, rank, world):
        self.cfg = cfg
        gen = torch.Generator().manual_seed(9)
        self.embed = torch.randn(cfg.vocab, cfg.width, generator=gen)
        cols = torch.arange(cfg.width).chunk(world)[rank]
        self.cols = cols
        self.proj = torch.randn(cfg.width, cfg.vocab, generator=gen)[cols]

    def logits(self, ids):
        hidden = self.embed[ids].mean(dim=0)
        partial = hidden[self.cols] @ self.proj
        dist.all_reduce(partial)
        return partial


class Engine:
    def __init__(self, cfg, state):
        self.cfg = cfg
        self.head = ShardedHead(cfg, state.process_index, state.num_processes)
        self.is_leader = state.is_main_process

    def encode(self, request):
        ids = [ord(c) % self.cfg.vocab for c in request.prompt]
        if self.is_leader and len(ids) + request.max_new_tokens > self.cfg.context:
            raise ValueError(f"request {request.uid}: {len(ids)} tokens exceed the context")
        return ids[: self.cfg.context]

    def generate(self, request):
        ids = self.encode(request)
        for _ in range(request.max_new_tokens):
            ids.append(int(self.head.logits(ids).argmax()))
        return ids


class Leader:
    def __init__(self, engine):
        self.engine = engine
        self.inbox = queue.Queue()
        self.replies = {}

    def command(self, op, payload=None):
        broadcast_object_list([op, payload], from_process=0)

    def handle(self, request):
        self.command("generate", request)
        try:
            self.replies[request.uid] = self.engine.generate(request)
        except ValueError as err:
            self.replies[request.uid] = {"status": 400, "detail": str(err)}
            log.info("rejected: %s", err)

    def serve(self):
        while True:
            request = self.inbox.get()
            if request is None:
                self.command("stop")
                return
            self.handle(request)


def follow(engine):
    while True:
        message = [None, None]
        broadcast_object_list(message, from_process=0)
        op, payload = message
        if op == "stop":
            return
        engine.generate(payload)


def client(inbox):
    texts = ["tell me a story", "what is a barrier", "hello there", "a short one"]
    for i in range(45):
        inbox.put(Request(texts[i % 4]))
        time.sleep(0.01)
    inbox.put(Request("please summarise the following paragraph for me: " + "lorem ipsum " * 3))
    for i in range(20):
        inbox.put(Request(texts[i % 4]))
    inbox.put(None)


def main():
    logging.basicConfig(level=logging.INFO)
    state = PartialState(cpu=True)
    engine = Engine(ServiceConfig(), state)
    state.wait_for_everyone()
    if state.is_main_process:
        leader = Leader(engine)
        threading.Thread(target=client, args=(leader.inbox,), daemon=True).start()
        leader.serve()
        log.info("%d replies", len(leader.replies))
    else:
        follow(engine)
    state.destroy_process_group()


if __name__ == "__main__":
    main()
