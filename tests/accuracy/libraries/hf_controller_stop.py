# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits = [1]
# lines = [42, 55, 71, 74, 126, 127]
# branch = ["rule.holds(self.metrics)", "should_training_stop", "should_epoch_stop", "rule.operation =="]
# source = "https://github.com/foundation-model-stack/fms-hf-tuning/pull/150"
# ///
"""Tunes a tiny BERT with the transformers Trainer; a rule based controller watches training metrics and acts on events."""
import logging
import operator
import os
import pathlib
import tempfile
from collections import deque
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("tuning")
RULES = [
    {"name": "loss-is-low", "metric": "window_loss", "op": "<", "threshold": 0.325, "operation": "stop"},
    {"name": "loss-exploded", "metric": "window_loss", "op": ">", "threshold": 20.0, "operation": "stop"},
]
OPS = {"<": operator.lt, ">": operator.gt}


class Rule:
    def __init__(self, spec):
        self.name, self.metric, self.threshold, self.operation = spec["name"], spec["metric"], spec["threshold"], spec["operation"]
        self.compare = OPS[spec["op"]]

    def holds(self, metrics):
        if self.metric not in metrics:
            return False
        return self.compare(metrics[self.metric], self.threshold)


class WindowLoss:
    """Mean loss over the last few steps."""

    def __init__(self, size=8):
        self.window = deque(maxlen=size)

    def update(self, value):
        self.window.append(value)

    def value(self):
        if len(self.window) < self.window.maxlen:
            return None
        return sum(self.window) / len(self.window)


class Controller(TrainerCallback):
    def __init__(self, rules, window):
        self.rules = [Rule(r) for r in rules]
        self.window = window
        self.metrics = {}

    def on_step_end(self, args, state, control, **kwargs):
        value = self.window.value()
        if value is not None:
            self.metrics["window_loss"] = value
        for rule in self.rules:
            if rule.holds(self.metrics):
                log.info("step %d: rule %s fires (%s)", state.global_step, rule.name, self.metrics)
                if rule.operation == "stop":
                    control.should_training_stop = True
        return control


class WatchedTrainer(Trainer):
    def __init__(self, *args, window, **kwargs):
        super().__init__(*args, **kwargs)
        self.window = window

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        if model.training:
            self.window.update(loss.detach().item())
        return (loss, outputs) if return_outputs else loss


def reviews(rows, seed):
    """Two sources are interleaved: short clear reviews and mixed ones whose sentiment is partly noise."""
    rng = np.random.default_rng(seed)
    records = {"input_ids": [], "attention_mask": [], "labels": []}
    for i in range(rows):
        label = int(rng.integers(2))
        clear = (i // 4) % 3 == 1
        vocabulary = (2 + label * 20, 22 + label * 20) if clear or rng.random() < 0.75 else (2, 42)
        records["input_ids"].append(rng.integers(*vocabulary, 12).tolist())
        records["attention_mask"].append([1] * 12)
        records["labels"].append(label)
    return Dataset.from_dict(records)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    logging.basicConfig(level=logging.WARNING, format=f"[{os.environ['RANK']}] %(message)s")
    log.setLevel(logging.INFO)
    out = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"tuning-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    args = TrainingArguments(
        output_dir=str(out), use_cpu=True, per_device_train_batch_size=4, per_device_eval_batch_size=8, max_steps=400, learning_rate=2e-3,
        logging_strategy="no", average_tokens_across_devices=False, save_strategy="no", report_to=[], disable_tqdm=True, seed=3, train_sampling_strategy="sequential",
    )
    scoring = dist.new_group(timeout=timedelta(hours=2))
    torch.manual_seed(3)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, max_position_embeddings=16,
    ))
    window = WindowLoss()
    trainer = WatchedTrainer(
        model, args, train_dataset=reviews(4800, 1), eval_dataset=reviews(240, 2), compute_metrics=accuracy,
        callbacks=[Controller(RULES, window)], window=window,
    )
    trainer.train()
    dist.barrier(scoring)
    scores = trainer.evaluate()
    log.info("%s", scores)


if __name__ == "__main__":
    main()
