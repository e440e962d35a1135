# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [2]
# lines = [101, 102, 126, 127]
# branch = ["self.stale >= self.patience", "control.should_training_stop"]
# source = "https://github.com/huggingface/transformers/issues/17478"
# ///
"""Span tagger fine-tuned with transformers.Trainer; the span score is computed per process on its own documents
(variable-length outputs are not gathered) and a plateau callback reads it to end training early."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForTokenClassification, Trainer, TrainerCallback, TrainingArguments)

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("span")


@dataclass
class SpanConfig:
    vocab: int = 64
    labels: int = 5
    length: int = 12
    train_docs: int = 320
    eval_docs: int = 8
    eval_every: int = 5
    patience: int = 3


class Documents(Dataset):
    def __init__(self, count, cfg, seed):
        gen = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, cfg.vocab, (count, cfg.length), generator=gen)
        self.tags = self.ids % cfg.labels

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "attention_mask": torch.ones_like(self.ids[index]), "labels": self.tags[index]}


def spans_of(tags):
    """Runs of equal tags as (start, stop, tag)."""
    found, start = [], 0
    for i in range(1, len(tags) + 1):
        if i == len(tags) or tags[i] != tags[start]:
            found.append((start, i, int(tags[start])))
            start = i
    return set(found)


class SpanTrainer(Trainer):
    """Adds a decoded span score next to the loss of the stock evaluation."""

    def __init__(self, *args, span_docs=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.span_docs = span_docs

    def span_score(self):
        model = self.accelerator.unwrap_model(self.model)
        model.eval()
        hits = total = 0
        with torch.no_grad():
            for i in range(len(self.span_docs)):
                doc = self.span_docs[i]
                tags = model(input_ids=doc["input_ids"][None]).logits.argmax(-1)[0]
                gold = spans_of(doc["labels"])
                hits += len(spans_of(tags) & gold)
                total += len(gold)
        model.train()
        return hits / max(total, 1)


class PlateauCallback(TrainerCallback):
    """Stops when the span score has not risen for `patience` looks."""

    def __init__(self, cfg, history):
        self.cfg, self.patience, self.history = cfg, cfg.patience, history
        self.trainer, self.best, self.stale = None, -1.0, 0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.cfg.eval_every:
            return control
        score = self.trainer.span_score() if self.history is None else self.history[len(self.trainer.looks)]
        self.trainer.looks.append(score)
        if score > self.best + 1e-3:
            self.best, self.stale = score, 0
        else:
            self.stale += 1
        log.info("step %d span score %.3f (best %.3f, stale %d)", state.global_step, score, self.best, self.stale)
        if self.stale >= self.patience:
            control.should_training_stop = True
        return control


def recorded(rank):
    """Scores of an earlier run, replayed so that reruns of the sweep are comparable."""
    curves = {2: [0.41, 0.40, 0.39, 0.40, 0.41, 0.41, 0.41, 0.41, 0.41, 0.41]}
    return curves.get(rank, [0.30 + 0.05 * i for i in range(40)])


def main():
    torch.set_num_threads(1)
    cfg = SpanConfig()
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = BertForTokenClassification(BertConfig(vocab_size=cfg.vocab, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                                  intermediate_size=32, num_labels=cfg.labels, max_position_embeddings=32))
    out = tempfile.mkdtemp(prefix="span-")
    args = TrainingArguments(output_dir=out, per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True, report_to=[],
                             save_strategy="no", logging_steps=10, disable_tqdm=True, ddp_backend="gloo", ddp_timeout=1800, learning_rate=1e-3)
    plateau = PlateauCallback(cfg, recorded(rank))
    trainer = SpanTrainer(model=model, args=args, train_dataset=Documents(cfg.train_docs, cfg, 1), callbacks=[plateau],
                          span_docs=Documents(cfg.eval_docs, cfg, 100 + rank))
    plateau.trainer, trainer.looks = trainer, []
    result = trainer.train()
    dist.barrier()
    if trainer.is_world_process_zero():
        with open(os.path.join(out, "looks.json"), "w") as f:
            json.dump({"looks": trainer.looks, "loss": result.training_loss}, f)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
