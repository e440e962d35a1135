# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD305"]
# culprits_any = [[1, 2], [0], [1], [2], [0, 1, 2]]
# lines = [30, 33, 41, 44, 46, 47, 62, 75]
# source = "LMCache/LMCache#1139 (#2136)"
# ///
"""Prefill and decode processes exchange cache blocks through a key-value store; blocks are found by their contents."""
import argparse
import io
import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("kv")


class BlockStore:
    def __init__(self, store, namespace):
        self.store = dist.PrefixStore(namespace, store)

    def put(self, key, tensor):
        buffer = io.BytesIO()
        torch.save(tensor, buffer)
        self.store.set(key, buffer.getvalue())

    def get(self, key):
        self.store.wait([key], timedelta(hours=1))
        return torch.load(io.BytesIO(self.store.get(key)))


class Hasher:
    """Chains the hash of a block with that of its prefix, so that equal prefixes share their blocks."""

    def __init__(self, model, block):
        self.root, self.block = (model, block), block

    def chain(self, tokens):
        parent = hash(self.root)
        for start in range(0, len(tokens) - self.block + 1, self.block):
            parent = hash((parent, tuple(tokens[start:start + self.block])))
            yield f"block/{parent & 0xffffffffffffffff:016x}"


class Prefill:
    def __init__(self, blocks, hasher, width):
        self.blocks, self.hasher = blocks, hasher
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(256, width)

    @torch.no_grad()
    def run(self, prompts):
        sent = 0
        for tokens in prompts:
            states = self.embedding(torch.tensor(tokens))
            for number, key in enumerate(self.hasher.chain(tokens)):
                self.blocks.put(key, states[number * self.hasher.block:(number + 1) * self.hasher.block])
                sent += 1
        return sent


class Decode:
    def __init__(self, blocks, hasher):
        self.blocks, self.hasher, self.cache = blocks, hasher, {}

    def run(self, prompts):
        for tokens in prompts:
            for key in self.hasher.chain(tokens):
                if key not in self.cache:
                    self.cache[key] = self.blocks.get(key)
        return len(self.cache)


def prompts(count, length):
    generator = torch.Generator().manual_seed(11)
    system = torch.randint(0, 256, (length // 2,), generator=generator).tolist()
    return [system + torch.randint(0, 256, (length // 2,), generator=generator).tolist() for _ in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--model", default="tiny-chat")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    blocks = BlockStore(dist.distributed_c10d._get_default_store(), "kv")
    hasher = Hasher(args.model, args.block)
    work = prompts(args.prompts, args.length)
    started = time.monotonic()
    if rank == 0:
        log.info("prefilled %d blocks", Prefill(blocks, hasher, 32).run(work))
    else:
        log.info("decoding with %d blocks", Decode(blocks, hasher).run(work))
    dist.barrier()
    log.info("finished in %.1f s", time.monotonic() - started)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
