# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits_any = [[0], [1]]
# lines = [48, 99, 100]
# branch = ["score >= self.best", "self.keeper.offer(epoch, val)"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/2993"
# ///
"""Train a ranker with DeepSpeed and keep the checkpoint with the lowest validation loss."""
import logging
import os
import tempfile
from dataclasses import dataclass

import deepspeed
import torch
from torch import nn

log = logging.getLogger("ranker")


@dataclass
class RankerConfig:
    epochs: int = 8
    steps: int = 6
    dim: int = 20
    folder: str = ""

    def ds(self):
        return {
            "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "Adam", "params": {"lr": 2e-3, "torch_adam": True}},
            "zero_optimization": {"stage": 0},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1000000,
        }


class BestKeeper:
    def __init__(self):
        self.best = float("inf")
        self.epoch = -1

    def offer(self, epoch: int, score: float) -> bool:
        if score >= self.best:
            return False
        self.best, self.epoch = score, epoch
        return True


class Ranker(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class RankerTrainer:
    def __init__(self, cfg: RankerConfig):
        self.cfg = cfg
        torch.manual_seed(9)
        net = Ranker(cfg.dim)
        self.engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=cfg.ds())
        self.keeper = BestKeeper()
        self.rank = self.engine.global_rank
        g = torch.Generator().manual_seed(100 + self.rank)
        self.rows = torch.randn(cfg.steps * 8, cfg.dim, generator=g)
        self.gold = self.rows.sum(-1) * 0.1
        self.val_rows, self.val_gold = self._val_shard(g)

    def _val_shard(self, g):
        """Every process validates on the queries of its own market."""
        rows = torch.randn(64, self.cfg.dim, generator=g)
        sign = 1.0 if self.rank % 2 == 0 else -1.0
        return rows, sign * rows.sum(-1) * 0.1

    def train_epoch(self):
        self.engine.train()
        for x, y in zip(self.rows.split(8), self.gold.split(8)):
            loss = nn.functional.mse_loss(self.engine(x), y)
            self.engine.backward(loss)
            self.engine.step()

    @torch.no_grad()
    def validate(self) -> float:
        self.engine.eval()
        return nn.functional.mse_loss(self.engine.module(self.val_rows), self.val_gold).item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.train_epoch()
            val = self.validate()
            log.info("rank %d epoch %d val %.5f", self.rank, epoch, val)
            if self.keeper.offer(epoch, val):
                self.engine.save_checkpoint(self.cfg.folder, tag=f"epoch{epoch}", client_state={"val": val})
        log.info("rank %d best %.5f at epoch %d", self.rank, self.keeper.best, self.keeper.epoch)


def without_compiler():
    """The training image has no compiler: leave the native shared-memory op alone."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    without_compiler()
    deepspeed.init_distributed(dist_backend="gloo")
    folder = os.path.join(tempfile.gettempdir(), "ranker_" + os.environ.get("MASTER_PORT", "0"))
    os.makedirs(folder, exist_ok=True)
    RankerTrainer(RankerConfig(folder=folder)).fit()


if __name__ == "__main__":
    main()
