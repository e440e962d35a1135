# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits_any = [[2, 3], [0, 1]]
# lines = [85, 87, 107]
# branch = ["used > self.quota"]
# source = "https://github.com/huggingface/transformers/issues/17478"
# ///
"""transformers Trainer with a callback that stops the training when the scratch quota of the host is used up by traces. The quotas of the
two hosts differ, so the ranks of one host leave the training loop and evaluate while the others train on."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger(__name__)


@dataclass
class ScratchSettings:
    trace_bytes: int = 4096
    quotas: tuple = (10_000_000, 40_000)  # bytes of each host
    ranks_per_host: int = 2


class Pairs(Dataset):
    def __init__(self, size, features, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, features, generator=gen)
        self.y = self.x[:, 0] * 2 - self.x[:, 1]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Net(nn.Module):
    def __init__(self, features=8, hidden=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x, labels=None):
        out = self.layers(x).squeeze(-1)
        return {"loss": F.mse_loss(out, labels), "logits": out}


class Scratch:
    """The scratch folder of a host; its quota is written there by the cluster."""

    def __init__(self, settings, rank):
        self.host = rank // settings.ranks_per_host
        self.folder = Path(tempfile.mkdtemp(prefix=f"scratch-host{self.host}-"))
        (self.folder / "quota.json").write_text(json.dumps({"bytes": settings.quotas[self.host]}))

    @property
    def quota(self):
        return json.loads((self.folder / "quota.json").read_text())["bytes"]

    def used(self):
        return sum(f.stat().st_size for f in self.folder.glob("*.trace"))


class TraceCallback(TrainerCallback):
    """Writes a trace of each step and ends the run cleanly before the file system does it the hard way."""

    def __init__(self, scratch, trace_bytes):
        self.scratch, self.quota, self.trace_bytes = scratch, scratch.quota, trace_bytes

    def on_step_begin(self, args, state, control, **kwargs):
        (self.scratch.folder / f"{state.global_step:06d}.trace").write_bytes(os.urandom(self.trace_bytes))

    def on_step_end(self, args, state, control, **kwargs):
        used = self.scratch.used()
        if used > self.quota:
            log.warning("%d bytes of traces, stopping", used)
            control.should_training_stop = True
        return control


def training_arguments():
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="out-"), use_cpu=True, ddp_backend="gloo", max_steps=4000, per_device_train_batch_size=4,
        per_device_eval_batch_size=4, learning_rate=1e-3, logging_steps=4, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_num_workers=0, remove_unused_columns=False, ddp_find_unused_parameters=False)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    settings = ScratchSettings()
    args = training_arguments()
    scratch = Scratch(settings, args.process_index)
    torch.manual_seed(0)
    trainer = Trainer(model=Net(), args=args, train_dataset=Pairs(512, 8, 0), eval_dataset=Pairs(64, 8, 1),
                      callbacks=[TraceCallback(scratch, settings.trace_bytes)])
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print("final", metrics)


if __name__ == "__main__":
    main()
