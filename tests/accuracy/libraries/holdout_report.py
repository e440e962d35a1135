# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits_any = [[2, 3], [0, 1]]
# lines = [88, 92]
# branch = ["state.best_model_checkpoint is None", "os.path.exists(best_checkpoint_dir)"]
# source = "https://github.com/huggingface/transformers/pull/37025"
# ///
"""Train a tabular classifier, then score the hold-out split with the best weights."""
import json
import logging
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("tabular")


class Scratch:
    """Working folders on the machine's own disk, as laid out by the batch system."""

    ranks_per_host = 2

    def __init__(self, job):
        self.root = Path(tempfile.gettempdir()) / f"tab-{job}"

    @property
    def host(self):
        return int(os.environ["LOCAL_RANK"]) // self.ranks_per_host

    def folder(self, name):
        path = self.root / f"host{self.host}" / name
        path.mkdir(parents=True, exist_ok=True)
        return path


class Tabular(nn.Module):
    def __init__(self, columns=12, classes=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(columns, 24), nn.ReLU(), nn.Linear(24, classes))

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


def make_split(rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=g)
    return TensorDataset(x, x[:, :3].argmax(-1))


def collate(rows):
    xs, ys = zip(*rows)
    return {"x": torch.stack(xs), "labels": torch.stack(ys)}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


class HoldoutReport(TrainerCallback):
    """Scores the hold-out split with the best weights once training is over."""

    def __init__(self, holdout, folder):
        self.holdout = holdout
        self.folder = folder
        self.trainer = None

    def attach(self, trainer):
        self.trainer = trainer
        trainer.add_callback(self)

    def restore(self, state):
        from safetensors.torch import load_file
        weights = Path(state.best_model_checkpoint) / "model.safetensors"
        self.trainer.model.load_state_dict(load_file(str(weights)))

    def on_train_end(self, args, state, control, **kwargs):
        if state.best_model_checkpoint is None:
            log.warning("no best weights recorded, keeping the last ones")
            return
        self.restore(state)
        scores = self.trainer.predict(self.holdout, metric_key_prefix="holdout").metrics
        (self.folder / f"holdout-{args.process_index}.json").write_text(json.dumps(scores))


def build_args(folder):
    return TrainingArguments(
        output_dir=str(folder), use_cpu=True, max_steps=40, per_device_train_batch_size=8,
        per_device_eval_batch_size=32, eval_strategy="steps", eval_steps=40, save_strategy="steps",
        save_steps=40, save_only_model=True, metric_for_best_model="accuracy", greater_is_better=True,
        report_to=[], disable_tqdm=True, ddp_backend="gloo", logging_steps=20, learning_rate=5e-3,
    )


def main():
    logging.basicConfig(level=logging.INFO)
    scratch = Scratch(os.environ["MASTER_PORT"])
    torch.manual_seed(0)
    trainer = Trainer(Tabular(), build_args(scratch.folder("run")), data_collator=collate,
                      train_dataset=make_split(1200, 1), eval_dataset=make_split(200, 2),
                      compute_metrics=accuracy)
    HoldoutReport(make_split(200, 3), scratch.folder("reports")).attach(trainer)
    result = trainer.train()
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        log.info("train loss %.4f, reports: %s", result.training_loss, list(scratch.folder("reports").iterdir()))


if __name__ == "__main__":
    main()
