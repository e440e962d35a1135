# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD401"]
# culprits = [2]
# lines = [40, 47, 57, 77, 106]
# source = "https://github.com/sgl-project/sglang-omni/pull/270"
# ///
"""A multimodal engine: the leading rank serves prompts and keeps the following ranks, its child processes, in step through queues."""
import logging
import multiprocessing
import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("omni")
WORLD = 4


@dataclass
class Segment:
    modality: str
    length: int


@dataclass
class Prompt:
    number: int
    segments: list = field(default_factory=list)


class Encoders:
    """The front ends whose weights live on a rank."""

    PLACEMENT = {0: ("text", "image", "audio"), 1: ("text", "image", "audio"), 2: ("text", "image"), 3: ("text", "image", "audio")}

    def __init__(self, rank: int, width: int = 32):
        gen = torch.Generator().manual_seed(rank)
        self.tables = {name: torch.randn(64, width, generator=gen) for name in self.PLACEMENT[rank]}

    def encode(self, segment: Segment) -> torch.Tensor:
        table = self.tables[segment.modality]
        return table[: segment.length].sum(dim=0)


class Engine:
    def __init__(self, rank: int):
        self.rank = rank
        self.encoders = Encoders(rank)

    def prepare(self, prompt: Prompt) -> torch.Tensor:
        return torch.stack([self.encoders.encode(segment) for segment in prompt.segments]).mean(dim=0)

    def forward(self, hidden: torch.Tensor) -> float:
        dist.all_reduce(hidden)
        return torch.tanh(hidden).sum().item()


def connect(rank: int, port: int):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s", force=True)


def follower(rank: int, port: int, inbox, outbox):
    connect(rank, port)
    engine = Engine(rank)
    while True:
        prompt = inbox.get()
        if prompt is None:
            break
        hidden = engine.prepare(prompt)
        outbox.put((rank, prompt.number))
        if inbox.get() == "go":
            engine.forward(hidden)
    dist.destroy_process_group()


class Leader:
    def __init__(self, port: int):
        context = multiprocessing.get_context("spawn")
        self.inboxes = [context.Queue() for _ in range(1, WORLD)]
        self.outbox = context.Queue()
        self.followers = [
            context.Process(target=follower, args=(rank, port, self.inboxes[rank - 1], self.outbox), name=f"tp{rank}")
            for rank in range(1, WORLD)]
        for process in self.followers:
            process.start()
        connect(0, port)
        self.engine = Engine(0)

    def tell(self, message):
        for inbox in self.inboxes:
            inbox.put(message)

    def answer(self, prompt: Prompt) -> float:
        self.tell(prompt)
        hidden = self.engine.prepare(prompt)
        prepared = set()
        while len(prepared) < len(self.followers):
            rank, number = self.outbox.get()
            if number == prompt.number:
                prepared.add(rank)
        self.tell("go")
        return self.engine.forward(hidden)

    def stop(self):
        self.tell(None)
        for process in self.followers:
            process.join()
        dist.destroy_process_group()


def traffic():
    mixes = (("text",), ("text", "image"), ("text", "text"), ("image", "audio"), ("text",))
    for number, mix in enumerate(mixes):
        yield Prompt(number, [Segment(name, 5 + number) for name in mix])


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    leader = Leader(port)
    for prompt in traffic():
        log.info("prompt %d -> %.4f", prompt.number, leader.answer(prompt))
    leader.stop()


if __name__ == "__main__":
    main()
