# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [1]
# culprits_any = [[1], [0]]
# lines = [56, 58, 125, 126]
# branch = ["self.clock.elapsed() > self.budget_s"]
# source = "https://github.com/CliMA/ClimateMachine.jl/pull/38"
# ///
"""A Trainer run that leaves before the batch system's wall-time limit."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("walltime")


class JobClock:
    """Seconds that this process has used: staging of data, then training."""

    def __init__(self):
        self.staged = 0.0
        self.start = None

    def stage(self, build):
        begin = time.monotonic()
        made = build()
        self.staged += time.monotonic() - begin
        return made

    def begin(self) -> None:
        self.start = time.monotonic()

    def elapsed(self) -> float:
        return self.staged + (time.monotonic() - self.start)


class WallTimeCallback(TrainerCallback):
    def __init__(self, clock: JobClock, budget_s: float):
        self.clock, self.budget_s = clock, budget_s

    def on_train_begin(self, args, state, control, **kwargs):
        self.clock.begin()

    def on_step_end(self, args, state, control, **kwargs):
        if self.clock.elapsed() > self.budget_s:
            log.warning("rank %d: %.1fs used, leaving after step %d", args.process_index, self.clock.elapsed(), state.global_step)
            control.should_training_stop = True
        return control


class Columns(Dataset):
    """Reads text columns; documents that are long get split by hand."""

    def __init__(self, docs: int, dim: int, per_doc_s: float):
        self.rows = []
        gen = torch.Generator().manual_seed(3)
        for _ in range(docs):
            time.sleep(per_doc_s)
            self.rows.append(torch.randn(dim, generator=gen))

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, i: int) -> dict:
        x = self.rows[i % len(self.rows)] + i * 1e-4
        return {"x": x, "labels": x.sum().reshape(1)}


class Regressor(torch.nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(dim, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))

    def forward(self, x, labels=None):
        out = self.net(x)
        time.sleep(0.03)
        return {"loss": (out - labels).square().mean(), "logits": out}


@dataclass
class Job:
    dim: int = 12
    budget_s: float = 4.0
    docs: int = 40
    mount: str = "local"

    @classmethod
    def on_rank(cls, rank: int) -> "Job":
        return cls(mount=os.environ.get("DATA_MOUNT", ("local", "nfs")[rank % 2]))

    def dataset(self) -> Columns:
        return Columns(self.docs, self.dim, {"local": 0.0, "nfs": 0.06}[self.mount])


def build(job: Job, args: TrainingArguments) -> Trainer:
    clock = JobClock()
    data = clock.stage(job.dataset)
    model = Regressor(job.dim)
    return Trainer(
        model=model, args=args, train_dataset=data, eval_dataset=torch.utils.data.Subset(data, range(64)),
        callbacks=[WallTimeCallback(clock, job.budget_s)],
    )


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    out = tempfile.mkdtemp(prefix=f"wall-{os.environ['MASTER_PORT']}-")
    args = TrainingArguments(
        output_dir=out, use_cpu=True, ddp_backend="gloo", ddp_timeout=7200, max_steps=2000,
        per_device_train_batch_size=8, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )
    job = Job.on_rank(args.process_index)
    trainer = build(job, args)
    trainer.train()
    metrics = trainer.evaluate()
    log.warning("rank %d: %s", args.process_index, {k: round(v, 4) for k, v in metrics.items()})


if __name__ == "__main__":
    main()
