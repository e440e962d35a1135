# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [0]
# culprits_any = [[1, 2]]
# lines = [55, 58, 89, 95, 96, 105, 112, 116, 129]
# branch = ["token == self.eos", "in range(self.max_new)"]
# source = "https://github.com/openai/gpt-oss/issues/270"
# ///
"""Offline chat inference with a tensor-parallel transformer: rank 0 hands out the prompts, all ranks decode together."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("chat")


@dataclass
class ModelConfig:
    vocab: int = 48
    width: int = 24
    heads: int = 6
    hidden: int = 96
    layers: int = 2
    eos: int = 0
    eos_bias: float = 1.5


class ParallelBlock:
    """Attention heads and feed-forward columns are split; the partial sums are reduced after each half."""

    def __init__(self, cfg, gen, rank, world):
        head = cfg.width // cfg.heads
        lo, hi = rank * cfg.heads // world * head, (rank + 1) * cfg.heads // world * head
        full = [torch.randn(cfg.width, cfg.width, generator=gen) / math.sqrt(cfg.width) for _ in range(4)]
        self.q, self.k, self.v = (w[:, lo:hi] for w in full[:3])
        self.o = full[3][lo:hi]
        up = torch.randn(cfg.width, cfg.hidden, generator=gen) / math.sqrt(cfg.width)
        down = torch.randn(cfg.hidden, cfg.width, generator=gen) / math.sqrt(cfg.hidden)
        a, b = rank * cfg.hidden // world, (rank + 1) * cfg.hidden // world
        self.up, self.down = up[:, a:b], down[a:b]
        self.head = head

    def __call__(self, x):
        q, k, v = (t.view(len(x), -1, self.head).transpose(0, 1) for t in (x @ self.q, x @ self.k, x @ self.v))
        scores = q @ k.transpose(1, 2) / math.sqrt(self.head)
        mask = torch.ones(len(x), len(x)).triu(1).bool()
        mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        part = mixed.transpose(0, 1).reshape(len(x), -1) @ self.o
        dist.all_reduce(part)
        x = x + 0.5 * part
        part = torch.relu(x @ self.up) @ self.down
        dist.all_reduce(part)
        return x + 0.5 * part


class Transformer:
    def __init__(self, cfg):
        gen = torch.Generator().manual_seed(2024)
        self.cfg = cfg
        self.embed = torch.randn(cfg.vocab, cfg.width, generator=gen)
        rank, world = dist.get_rank(), dist.get_world_size()
        self.blocks = [ParallelBlock(cfg, gen, rank, world) for _ in range(cfg.layers)]

    def logits(self, ids):
        x = self.embed[ids]
        for block in self.blocks:
            x = block(x)
        out = x[-1] @ self.embed.t() / math.sqrt(self.cfg.width)
        out[self.cfg.eos] += self.cfg.eos_bias
        return out


class TokenGenerator:
    def __init__(self, model, temperature, max_new):
        self.model, self.temperature, self.max_new = model, temperature, max_new
        self.eos = model.cfg.eos
        self.window = 16

    def pick(self, logits):
        if self.temperature == 0:
            return int(logits.argmax())
        probs = torch.softmax(logits / self.temperature, dim=-1)
        return int(torch.multinomial(probs, 1))

    def generate(self, prompt):
        ids = list(prompt)
        for _ in range(self.max_new):
            tail = ids[-self.window:]
            token = self.pick(self.model.logits(torch.tensor(tail)))
            if token == self.eos:
                break
            ids.append(token)
        return ids[len(prompt):]


def next_request(queue):
    """The head rank owns the queue; `None` closes the session."""
    box = [queue.pop(0) if queue else None] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def serve(generator, queue):
    answered = 0
    while True:
        request = next_request(queue)
        if request is None:
            return answered
        generator.temperature = request["temperature"]
        answer = generator.generate(request["prompt"])
        answered += 1
        log.info("%s -> %d tokens", request["id"], len(answer))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    queue = []
    if rank == 0:
        queue = [{"id": f"greedy-{i}", "prompt": [3 + i, 7, 9], "temperature": 0.0} for i in range(2)]
        queue += [{"id": f"chat-{i}", "prompt": [5, 11 + i, 30], "temperature": 1.0} for i in range(12)]
    torch.manual_seed(1000 + rank)
    generator = TokenGenerator(Transformer(ModelConfig()), temperature=1.0, max_new=24)
    serve(generator, queue)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
