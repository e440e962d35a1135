# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD202", "HD201"]
# culprits_any = [[2]]
# lines = [58, 68, 74, 76, 80]
# branch = ["self._confident(hidden)", "float(probs.max()) > self.cfg.exit_threshold", "probs.max()"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/5568"
# ///
"""Pipeline inference in four stages with early-exit heads in the middle stages: the answer comes back to rank 0 from the last stage.
For an easy prompt stage 2 is confident, records its answer and takes the next request; stage 3 never gets the hidden state."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pipeline")


@dataclass
class PipeConfig:
    hidden: int = 16
    classes: int = 5
    seq: int = 6
    requests: int = 12
    exit_threshold: float = 0.995
    exit_stages: tuple = (2,)


class ExitHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.proj = nn.Linear(cfg.hidden, cfg.classes)

    def forward(self, hidden):
        return self.proj(hidden.mean(0)).softmax(-1)


class Stage:
    """One slice of the layers, talking to its neighbours only."""

    def __init__(self, cfg: PipeConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7 + self.rank)
        self.layer = nn.Linear(cfg.hidden, cfg.hidden)
        self.exit_head = ExitHead(cfg) if self.rank in cfg.exit_stages else None
        self.answered = {}

    @property
    def last(self):
        return self.rank == self.world - 1

    def pull(self):
        buf = torch.empty(self.cfg.seq, self.cfg.hidden)
        dist.recv(buf, src=self.rank - 1)
        return buf

    def push(self, hidden):
        dist.send(hidden.contiguous(), dst=self.rank + 1)

    def _confident(self, hidden):
        if self.exit_head is None:
            return False
        probs = self.exit_head(hidden)
        return float(probs.max()) > self.cfg.exit_threshold

    @torch.no_grad()
    def step(self, uid):
        hidden = self.pull()
        hidden = hidden + torch.tanh(self.layer(hidden)) * 0.1
        if self._confident(hidden):
            self.answered[uid] = int(self.exit_head(hidden).argmax())
            return
        if self.last:
            dist.send(hidden.mean(0), dst=0)
        else:
            self.push(hidden)


class FrontEnd(Stage):
    """Rank 0: embeds the prompt, waits for the pooled answer of the last stage."""

    def prompts(self):
        for uid in range(self.cfg.requests):
            g = torch.Generator().manual_seed(uid)
            scale = 60.0 if uid == 7 else 1.0
            yield uid, torch.randn(1, self.cfg.hidden, generator=g).expand(self.cfg.seq, -1) * scale

    @torch.no_grad()
    def step(self, prompt):
        hidden = torch.tanh(self.layer(prompt)) + prompt
        self.push(hidden)
        pooled = torch.empty(self.cfg.hidden)
        dist.recv(pooled, src=self.world - 1)
        return pooled


def serve(cfg: PipeConfig):
    if dist.get_rank() == 0:
        front = FrontEnd(cfg)
        for uid, prompt in front.prompts():
            pooled = front.step(prompt)
            log.info("request %d answered, norm %.2f", uid, pooled.norm())
    else:
        stage = Stage(cfg)
        for uid in range(cfg.requests):
            stage.step(uid)
    dist.barrier()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    serve(PipeConfig())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
