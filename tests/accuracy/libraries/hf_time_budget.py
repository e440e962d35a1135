# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits = [2]
# lines = [69, 70]
# branch = ["self.used() >= self.limit"]
# source = "https://github.com/huggingface/transformers/issues/26724"
# ///
"""Trainer with a callback that ends training when the allocation's time is used up, counting the segments before the last
requeue. Every process keeps its own time file."""
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

WORK = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "budget_run"
RANK = int(os.environ.get("RANK", 0))


class Reviews(Dataset):
    def __init__(self, n, vocab=64, length=12, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, vocab, (n, length), generator=g)
        self.labels = (self.ids[:, 0] > vocab // 2).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones_like(self.ids[i]), "labels": self.labels[i]}


def slow_collate(rows):
    time.sleep(0.15)
    return {k: torch.stack([r[k] for r in rows]) for k in rows[0]}


class Stopwatch:
    """Seconds used by this job over all its segments."""

    def __init__(self, path):
        self.path = path
        self.before = json.loads(path.read_text())["seconds"] if path.exists() else 0.0
        self.began = time.monotonic()

    def used(self):
        return self.before + time.monotonic() - self.began

    def save(self):
        self.path.write_text(json.dumps({"seconds": self.used()}))


class TimeBudgetCallback(TrainerCallback):
    def __init__(self, watch, limit):
        self.watch, self.limit = watch, limit

    def used(self):
        return self.watch.used()

    def on_step_end(self, args, state, control, **kwargs):
        if self.used() >= self.limit:
            control.should_training_stop = True
        return control

    def on_train_end(self, args, state, control, **kwargs):
        self.watch.save()


def earlier_segments():
    """What the first two segments left; the third node of the second one was drained late."""
    WORK.mkdir(exist_ok=True, parents=True)
    seconds = {0: 301.2, 1: 301.4, 2: 391.8, 3: 301.3}[RANK]
    (WORK / f"time_{RANK}.json").write_text(json.dumps({"seconds": seconds}))


def main():
    torch.set_num_threads(1)
    set_seed(11)
    earlier_segments()
    config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                        max_position_embeddings=16, num_labels=2)
    arguments = TrainingArguments(output_dir=str(WORK / "out"), per_device_train_batch_size=4, per_device_eval_batch_size=8,
                                  max_steps=400, logging_steps=20, save_strategy="no", report_to=[], use_cpu=True,
                                  ddp_backend="gloo", disable_tqdm=True, learning_rate=1e-3, ddp_timeout=1800,
                                  average_tokens_across_devices=False)
    watch = Stopwatch(WORK / f"time_{RANK}.json")
    trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Reviews(3200),
                      eval_dataset=Reviews(64, seed=1), data_collator=slow_collate,
                      callbacks=[TimeBudgetCallback(watch, limit=400.0)])
    result = trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print("trained", result.global_step, "steps; eval", round(metrics["eval_loss"], 4), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
