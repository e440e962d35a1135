# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["megatron.core"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [1]
# culprits_any = [[1], [0, 2], [0]]
# lines = [49, 68, 83, 108, 109, 117, 130]
# branch = ["self.engine.has_work()", "self.live or self.backlog", "bool(self.live or self.backlog)"]
# source = "https://github.com/NVIDIA/Megatron-LM/pull/2470"
# ///
"""Data-parallel engines that share experts; groups come from megatron.core.parallel_state."""
import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import parallel_state

log = logging.getLogger("engine")


@dataclass
class Prompt:
    uid: int
    text: str
    budget: int
    produced: list = field(default_factory=list)


class Tokenizer:
    def encode(self, text: str) -> list:
        return [ord(c) % 61 for c in text]


class SharedExperts(torch.nn.Module):
    """Every rank holds one expert; tokens are summed over the expert group."""

    def __init__(self, dim: int, group):
        super().__init__()
        self.group = group
        self.up = torch.nn.Linear(dim, dim, bias=False)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = torch.tanh(self.up(x))
        dist.all_reduce(mixed, group=self.group)
        return mixed


class Engine:
    SLOTS = 3

    def __init__(self, dim: int = 16):
        self.dim = dim
        self.tok = Tokenizer()
        self.backlog: list = []
        self.live: list = []
        self.experts = SharedExperts(dim, parallel_state.get_data_parallel_group())
        self.steps = 0

    def submit(self, prompt: Prompt) -> None:
        self.backlog.append(prompt)

    def has_work(self) -> bool:
        return bool(self.live or self.backlog)

    def _schedule(self) -> None:
        while self.backlog and len(self.live) < self.SLOTS:
            self.live.append(self.backlog.pop(0))

    def _embed(self) -> torch.Tensor:
        x = torch.zeros(self.SLOTS, self.dim)
        for slot, p in enumerate(self.live):
            ids = self.tok.encode(p.text) + p.produced
            x[slot, : min(len(ids), self.dim)] = torch.tensor(ids[-self.dim:], dtype=torch.float) / 61
        return x

    def step(self) -> list:
        self._schedule()
        out = self.experts(self._embed())
        for slot, p in enumerate(self.live):
            p.produced.append(int(out[slot].argmax()))
        done = [p for p in self.live if len(p.produced) >= p.budget]
        self.live = [p for p in self.live if p not in done]
        self.steps += 1
        return done


class Frontend:
    """Each data-parallel rank serves its own file of prompts."""

    QUESTIONS = {
        0: [("what is a mesh", 12), ("why gloo", 10), ("name a bird", 9), ("capital of peru", 14)],
        1: [("two plus two", 4), ("say hi", 3)],
    }

    def __init__(self, engine: Engine):
        self.engine = engine
        self.rank = parallel_state.get_data_parallel_rank()
        for uid, (text, budget) in enumerate(self.QUESTIONS[self.rank % len(self.QUESTIONS)]):
            engine.submit(Prompt(uid, text, budget))

    def serve(self) -> int:
        answered = 0
        while self.engine.has_work():
            for p in self.engine.step():
                answered += 1
                log.info("dp %d: prompt %d done after %d tokens", self.rank, p.uid, len(p.produced))
        return answered


def finish(answered: int) -> None:
    total = torch.tensor([answered])
    dist.broadcast(total, src=0)
    log.info("rank %d answered %d", dist.get_rank(), answered)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    log.setLevel(logging.INFO)
    torch.manual_seed(int(os.environ["RANK"]))
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=1, distributed_timeout_minutes=180, create_gloo_process_groups=False
    )
    answered = Frontend(Engine()).serve()
    finish(answered)
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
