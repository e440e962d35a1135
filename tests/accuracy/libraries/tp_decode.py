# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits_any = [[2]]
# lines = [62, 74, 90, 91, 106]
# branch = ["token in self.stop_ids"]
# source = "https://github.com/huggingface/transformers/issues/36634"
# ///
"""Tensor-parallel decoding: greedy prompts first, then sampled ones.
Each rank samples with its own generator, so one rank draws a stop token earlier than the others and leaves the loop."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("decode")


@dataclass
class SamplingParams:
    temperature: float = 0.0
    top_k: int = 20
    max_new_tokens: int = 60


@dataclass
class ModelConfig:
    vocab: int = 48
    hidden: int = 24
    ffn: int = 48
    layers: int = 2
    eos: tuple = (1, 2, 3)
    seed: int = 1234


class ParallelFFN(nn.Module):
    """Column-parallel up, row-parallel down."""

    def __init__(self, cfg: ModelConfig, tp: int):
        super().__init__()
        self.up = nn.Linear(cfg.hidden, cfg.ffn // tp)
        self.down = nn.Linear(cfg.ffn // tp, cfg.hidden, bias=False)

    def forward(self, x):
        partial = self.down(torch.relu(self.up(x)))
        dist.all_reduce(partial)
        return x + partial


class Sampler:
    def __init__(self, params: SamplingParams, generator: torch.Generator):
        self.params, self.generator = params, generator

    def pick(self, logits: torch.Tensor) -> int:
        if self.params.temperature <= 0:
            return int(logits.argmax())
        values, ids = (logits / self.params.temperature).topk(self.params.top_k)
        choice = torch.multinomial(values.softmax(-1), 1, generator=self.generator)
        return int(ids[choice])


class Engine:
    def __init__(self, cfg: ModelConfig):
        self.cfg, self.rank, self.tp = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(cfg.seed)
        self.embed = nn.Embedding(cfg.vocab, cfg.hidden)
        self.head = nn.Linear(cfg.hidden, cfg.vocab)
        torch.manual_seed(cfg.seed + self.rank)
        self.blocks = nn.ModuleList(ParallelFFN(cfg, self.tp) for _ in range(cfg.layers))
        self.generator = torch.Generator().manual_seed(cfg.seed + self.rank)
        self.stop_ids = set(cfg.eos)

    def forward(self, tokens):
        x = self.embed(torch.tensor(tokens[-8:])).mean(0)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @torch.no_grad()
    def generate(self, prompt, params: SamplingParams):
        tokens, sampler = list(prompt), Sampler(params, self.generator)
        while len(tokens) - len(prompt) < params.max_new_tokens:
            logits = self.forward(tokens)
            token = sampler.pick(logits)
            tokens.append(token)
            if token in self.stop_ids:
                break
        return tokens[len(prompt):]


class Batch:
    def __init__(self, prompts, params):
        self.prompts, self.params = prompts, params

    def run(self, engine: Engine):
        return [engine.generate(p, self.params) for p in self.prompts]


def collect(results):
    """The driver compares the ranks' texts; they ought to be equal."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, results)
    return everyone


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    engine = Engine(ModelConfig())
    greedy = Batch([[5, 9, 11], [20, 21], [33, 7, 40, 8]], SamplingParams(max_new_tokens=12))
    creative = Batch([[12, 14]], SamplingParams(temperature=1.1))
    for name, batch in (("greedy", greedy), ("creative", creative)):
        results = collect(batch.run(engine))
        log.info("[rank %d] %s lengths %s", engine.rank, name, [len(r) for r in results[engine.rank]])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
