# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [63, 70]
# branch = ["rank in settings.write_ranks", "settings.write_ranks"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/797"
# ///
"""DeepSpeed fine-tuning with checkpoint classes chosen at the start; only the ranks named in the settings get the class that
writes."""
import logging
import os
import pathlib
import tempfile
from dataclasses import dataclass, field

import deepspeed
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("tune")


@dataclass
class Settings:
    dim: int = 16
    micro_batch: int = 4
    steps: int = 60
    save_every: int = 10
    write_ranks: tuple = (0,)
    out: pathlib.Path = field(default_factory=lambda: pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "tune")


class Reranker(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query, self.doc = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, q, d):
        return self.score(torch.tanh(self.query(q) + self.doc(d))).squeeze(-1)


class Checkpointer:
    def __init__(self, engine, settings):
        self.engine, self.settings, self.saved = engine, settings, []

    def step(self, step, loss):
        """Called after every optimizer step."""


class EngineCheckpointer(Checkpointer):
    keep = 3

    def step(self, step, loss):
        if step == 0 or step % self.settings.save_every:
            return
        tag = f"step{step:05d}"
        self.engine.save_checkpoint(str(self.settings.out), tag=tag, client_state={"loss": loss})
        self.saved.append(tag)
        del self.saved[: -self.keep]


def checkpointer_for(engine, settings):
    rank = int(os.environ["RANK"])
    kind = EngineCheckpointer if rank in settings.write_ranks else Checkpointer
    return kind(engine, settings)


def pairs(n, dim, seed):
    g = torch.Generator().manual_seed(seed)
    q, d = torch.randn(n, dim, generator=g), torch.randn(n, dim, generator=g)
    return TensorDataset(q, d, ((q * d).sum(1) > 0).float())


def ds_config(settings):
    return {"train_micro_batch_size_per_gpu": settings.micro_batch, "gradient_accumulation_steps": 1,
            "zero_optimization": {"stage": 0}, "steps_per_print": 1000, "checkpoint": {"tag_validation": "Ignore"}}


def batches(loader):
    while True:
        yield from loader


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    settings = Settings()
    settings.out.mkdir(parents=True, exist_ok=True)
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    model = Reranker(settings.dim)
    engine, _, _, _ = deepspeed.initialize(model=model, config=ds_config(settings),
                                           optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3))
    checkpointer = checkpointer_for(engine, settings)
    data = batches(DataLoader(pairs(256, settings.dim, engine.global_rank), batch_size=settings.micro_batch))
    for step in range(settings.steps):
        q, d, y = next(data)
        loss = F.binary_cross_entropy_with_logits(engine(q, d), y)
        engine.backward(loss)
        engine.step()
        checkpointer.step(step, loss.item())
        if engine.global_rank == 0 and step % 5 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    deepspeed.comm.barrier()


if __name__ == "__main__":
    main()
