# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD202", "HD201"]
# culprits = [3]
# lines = [78, 86, 96, 97, 104, 110]
# branch = ["valid.any()"]
# source = "https://github.com/tdrussell/diffusion-pipe/issues/409"
# ///
"""Hand-written 1F1B over four stages. The last stage returns early from the backward of a micro-batch without a single label and
never sends that gradient: the later ones move up by one and stage 2 waits for one too many at the end, stage 3 for its next step."""
import logging
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

IGNORE = -100
log = logging.getLogger("1f1b")


@dataclass
class PipeConfig:
    vocab: int = 32
    width: int = 16
    seq: int = 8
    micro_batch: int = 2
    micro_batches: int = 8
    steps: int = 12
    lr: float = 1e-2


class ChatBatches:
    """Prompt tokens carry no label; `turns` says after which position the assistant speaks."""

    def __init__(self, cfg):
        self.cfg, self.gen = cfg, torch.Generator().manual_seed(3)

    def next(self, step):
        c = self.cfg
        n = c.micro_batch * c.micro_batches
        tokens = torch.randint(c.vocab, (n, c.seq), generator=self.gen)
        turns = torch.randint(2, c.seq - 2, (n,), generator=self.gen)
        if step == 4:
            turns[6:8] = c.seq  # two conversations cut before the first answer
        labels = tokens.roll(-1, 1)
        labels[torch.arange(c.seq)[None, :] < turns[:, None]] = IGNORE
        return tokens.chunk(c.micro_batches), labels.chunk(c.micro_batches)


class Stage(nn.Module):
    def __init__(self, cfg, index, count):
        super().__init__()
        self.first, self.last = index == 0, index == count - 1
        self.embed = nn.Embedding(cfg.vocab, cfg.width) if self.first else None
        self.block = nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.width), nn.GELU())
        self.head = nn.Linear(cfg.width, cfg.vocab) if self.last else None

    def forward(self, x):
        if self.first:
            x = self.embed(x)
        x = x + self.block(x)
        return self.head(x) if self.last else x


class OneFOneB:
    def __init__(self, cfg, stage, rank, world):
        self.cfg, self.stage, self.rank, self.world = cfg, stage, rank, world
        self.flying, self.sends = deque(), []
        self.loss = 0.0

    def _recv(self, peer):
        buf = torch.empty(self.cfg.micro_batch, self.cfg.seq, self.cfg.width)
        dist.recv(buf, src=peer)
        return buf

    def _send(self, tensor, peer):
        tensor = tensor.detach().contiguous()
        self.sends.append((dist.isend(tensor, dst=peer), tensor))

    def forward(self, tokens, labels):
        x = tokens if self.stage.first else self._recv(self.rank - 1).requires_grad_()
        y = self.stage(x)
        if not self.stage.last:
            self._send(y, self.rank + 1)
        self.flying.append((x, y, labels))

    def backward(self):
        x, y, labels = self.flying.popleft()
        if self.stage.last:
            valid = labels.ne(IGNORE)
            if not valid.any():
                return
            loss = F.cross_entropy(y.flatten(0, 1), labels.flatten(), ignore_index=IGNORE) / self.cfg.micro_batches
            self.loss += loss.item()
            loss.backward()
        else:
            y.backward(self._recv(self.rank + 1))
        if not self.stage.first:
            self._send(x.grad, self.rank - 1)

    def step(self, tokens, labels):
        self.loss = 0.0
        warmup = min(self.world - 1 - self.rank, self.cfg.micro_batches)
        for m in range(self.cfg.micro_batches):
            self.forward(tokens[m], labels[m])
            if m >= warmup:
                self.backward()
        while self.flying:
            self.backward()
        for work, _ in self.sends:
            work.wait()
        self.sends.clear()
        return self.loss


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = PipeConfig()
    stage = Stage(cfg, rank, world)
    optim = torch.optim.AdamW(stage.parameters(), lr=cfg.lr)
    data, engine = ChatBatches(cfg), OneFOneB(cfg, stage, rank, world)
    for step in range(cfg.steps):
        optim.zero_grad()
        loss = engine.step(*data.next(step))
        optim.step()
        if stage.last:
            log.info("step %d loss %.3f", step, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
