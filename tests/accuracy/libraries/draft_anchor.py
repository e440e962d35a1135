# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits = [2]
# lines = [67, 68, 94, 95, 96]
# branch = ["except NoValidAnchors as err", "len(starts) == 0"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"
# ///
"""Train a draft head on blocks that start at anchors of the target's hidden states."""
import logging
from dataclasses import dataclass
from typing import Iterator, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("draft")


class NoValidAnchors(RuntimeError):
    """No sample of the micro batch is long enough for one block."""


@dataclass(frozen=True)
class DraftConfig:
    block: int = 5
    hidden: int = 16
    micro: int = 3
    total: int = 400
    accumulate: int = 1
    lr: float = 2e-3


class HiddenStates:
    """Iterates over (states, lengths) as the target model would emit them."""

    def __init__(self, cfg: DraftConfig, rank: int):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(53)
        self.rank = rank

    def __iter__(self) -> Iterator[Tuple[Tensor, Tensor]]:
        world = dist.get_world_size()
        for i in range(self.cfg.total):
            lengths = torch.randint(4, 14, (world, self.cfg.micro), generator=self.g)
            states = torch.randn(self.cfg.micro, 14, self.cfg.hidden, generator=self.g)
            yield states, lengths[self.rank]


class DraftHead(nn.Module):
    def __init__(self, cfg: DraftConfig):
        super().__init__()
        self.gru = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.norm = nn.BatchNorm1d(cfg.hidden)

    def forward(self, blocks):
        out, _ = self.gru(blocks)
        return self.norm(out.transpose(1, 2)).transpose(1, 2)


def cut_blocks(states: Tensor, lengths: Tensor, cfg: DraftConfig) -> Tensor:
    starts = [(row, int(n) - cfg.block) for row, n in enumerate(lengths) if n >= cfg.block]
    if len(starts) == 0:
        raise NoValidAnchors(f"lengths {lengths.tolist()} with block {cfg.block}")
    return torch.stack([states[row, s : s + cfg.block] for row, s in starts])


class DraftTrainer:
    def __init__(self, cfg: DraftConfig):
        self.cfg = cfg
        torch.manual_seed(6)
        self.model = DistributedDataParallel(DraftHead(cfg))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.data = HiddenStates(cfg, dist.get_rank())
        self.skipped = 0
        self.done = 0

    def micro_step(self, states, lengths) -> float:
        self.opt.zero_grad()
        predicted = cut_blocks(self.model(states), lengths, self.cfg)
        wanted = cut_blocks(states, lengths, self.cfg)
        loss = (predicted[:, :-1] - wanted[:, 1:]).pow(2).mean()
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self):
        for states, lengths in self.data:
            try:
                loss = self.micro_step(states, lengths)
            except NoValidAnchors as err:
                self.skipped += 1
                log.debug("skipping: %s", err)
                continue
            self.done += 1
            if self.done % 50 == 0 and dist.get_rank() == 0:
                log.info("%d micro batches, %d skipped, loss %.4f", self.done, self.skipped, loss)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    DraftTrainer(DraftConfig()).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
