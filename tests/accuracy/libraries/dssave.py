# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106"]
# culprits_any = [[0], [1]]
# lines = [59, 91, 93]
# branch = ["self.keeper.due(step)", "self.root is not None and step % self.every == 0", "self.root is not None"]
# source = "https://github.com/bghira/SimpleTuner/issues/262"
# ///
"""Diffusion tuner on DeepSpeed: noise prediction with periodic checkpoints, old checkpoints are rotated."""
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn

log = logging.getLogger("tuner")


@dataclass
class TunerArgs:
    steps: int = 30
    checkpointing_steps: int = 12
    checkpoints_total_limit: int = 2
    dim: int = 16


class Denoiser(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.time = nn.Embedding(10, dim)
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, t):
        return self.net(x + self.time(t))


class CheckpointKeeper:
    """Knows where checkpoints go and which of them are to be removed."""

    def __init__(self, root, every, limit):
        self.root, self.every, self.limit = root, every, limit

    @classmethod
    def create(cls, args, is_main):
        root = Path(tempfile.mkdtemp(prefix="tuner_%s_" % os.environ["MASTER_PORT"])) if is_main else None
        return cls(root, args.checkpointing_steps, args.checkpoints_total_limit)

    def due(self, step):
        return self.root is not None and step % self.every == 0

    def rotate(self):
        kept = sorted(self.root.glob("checkpoint-*"))
        for old in kept[: max(0, len(kept) - self.limit + 1)]:
            shutil.rmtree(old)


class Tuner:
    def __init__(self, args):
        self.args = args
        ds_config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
                     "steps_per_print": 1000, "zero_optimization": {"stage": 0}}
        model = Denoiser(args.dim)
        self.engine, *_ = deepspeed.initialize(model=model, config=ds_config,
                                               optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3))
        self.keeper = CheckpointKeeper.create(args, self.engine.global_rank == 0)
        self.gen = torch.Generator().manual_seed(self.engine.global_rank)

    def train_step(self):
        x = torch.randn(4, self.args.dim, generator=self.gen)
        t = torch.randint(0, 10, (4,), generator=self.gen)
        noise = torch.randn(4, self.args.dim, generator=self.gen)
        level = (t.float() / 10)[:, None]
        loss = nn.functional.mse_loss(self.engine((1 - level) * x + level * noise, t), noise)
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.train_step()
            if self.keeper.due(step):
                self.keeper.rotate()
                self.engine.save_checkpoint(str(self.keeper.root), tag=f"checkpoint-{step:06d}")
                log.info("saved at %d, loss %.4f", step, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler in the image
    deepspeed.init_distributed(dist_backend="gloo", timeout=timedelta(hours=1))
    Tuner(TunerArgs()).run()
    deepspeed.comm.barrier()
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
