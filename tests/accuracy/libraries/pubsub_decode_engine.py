# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD507", "HD202"]
# culprits = [3]
# culprits_any = [[0]]
# lines = [56, 57, 66, 70, 106, 112, 113, 115, 117]
# source = "https://github.com/NVIDIA/Megatron-LM/pull/6779"
# ///
"""Tensor-parallel decode engine: rank 0 fans requests out over a local control channel, every rank adds its partial logits."""
import json
import logging
import os
import socket
import struct
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("engine")


@dataclass
class EngineConfig:
    hidden: int = 64
    vocab: int = 512
    vocab_entries: int = 800_000
    prompts: int = 60_000
    rounds: int = 4


class ControlPublisher:
    """Fan-out socket: whatever is published goes to every subscriber known at that moment."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._peers = {}
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True, name="ctl-accept").start()

    def _accept(self):
        while True:
            conn, _ = self._server.accept()
            (who,) = struct.unpack("!I", conn.recv(4, socket.MSG_WAITALL))
            with self._guard:
                self._peers[who] = conn
            log.info("subscriber %d registered", who)

    def publish(self, message: dict):
        blob = json.dumps(message).encode()
        with self._guard:
            for conn in self._peers.values():
                conn.sendall(struct.pack("!I", len(blob)) + blob)


class ControlSubscriber:
    def __init__(self, port: int, who: int):
        self._conn = socket.create_connection(("127.0.0.1", port))
        self._conn.sendall(struct.pack("!I", who))

    def receive(self) -> dict:
        size = self._read(4)
        return json.loads(self._read(struct.unpack("!I", size)[0]))

    def _read(self, count: int) -> bytes:
        data = self._conn.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise ConnectionError("control channel closed")
        return data


class Shard:
    def __init__(self, cfg: EngineConfig, rank: int, world: int):
        gen = torch.Generator().manual_seed(100 + rank)
        self.weight = torch.randn(cfg.hidden, cfg.vocab, generator=gen) / world
        self.has_lm_head = rank == world - 1
        self.pieces = {}

    def index_vocabulary(self, entries: int):
        for i in range(entries):
            self.pieces[f"tok{i * 2654435761 % 4294967296:x}"] = i

    def partial(self, seed: int) -> torch.Tensor:
        hidden = torch.randn(1, self.weight.shape[0], generator=torch.Generator().manual_seed(seed))
        return hidden @ self.weight


def tokenise(prompts: int) -> list:
    texts = [f"prompt number {i} of the smoke set" for i in range(prompts)]
    return [sum(map(ord, t)) % 997 for t in texts]


def step(shard: Shard, seed: int) -> torch.Tensor:
    logits = shard.partial(seed)
    dist.all_reduce(logits)
    return logits.argmax()


def lead(cfg: EngineConfig, shard: Shard, publisher: ControlPublisher):
    seeds = tokenise(cfg.prompts)
    for number in range(cfg.rounds):
        publisher.publish({"op": "decode", "seed": seeds[number]})
        log.info("round %d token %d", number, step(shard, seeds[number]))
    publisher.publish({"op": "stop"})


def follow(cfg: EngineConfig, shard: Shard, port: int, rank: int):
    if shard.has_lm_head:
        shard.index_vocabulary(cfg.vocab_entries)
        log.info("vocabulary index ready: %d pieces", len(shard.pieces))
    channel = ControlSubscriber(port, rank)
    while True:
        order = channel.receive()
        if order["op"] == "stop":
            return
        step(shard, order["seed"])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cfg = EngineConfig()
    shard = Shard(cfg, rank, world)
    publisher = ControlPublisher() if rank == 0 else None
    address = [publisher.port if publisher else None]
    dist.broadcast_object_list(address, src=0)
    dist.barrier()
    if publisher:
        lead(cfg, shard, publisher)
    else:
        follow(cfg, shard, address[0], rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
