# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [1]
# lines = [79, 81, 99, 118]
# branch = ["self.meter.seen >= self.budget", "meter.seen >= self.budget"]
# source = "https://github.com/huggingface/transformers/issues/17478"
# ///
"""Causal LM fine-tuning with the transformers Trainer and a token budget.

Each rank counts the tokens of its own batches and stops when the budget is spent: rank 1 gets the long documents and stops
first, and enters the collectives that close a training.
"""
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("sft")


@dataclass
class RunConfig:
    documents: int = 480
    short: int = 10
    long: int = 26
    budget: int = 700
    max_steps: int = 60


class Documents(Dataset):
    """Documents in the order of their crawl; every fourth pair is a long report."""

    def __init__(self, cfg):
        self.cfg = cfg

    def __len__(self):
        return self.cfg.documents

    def __getitem__(self, i):
        length = self.cfg.long if (i // 4) % 4 == 1 else self.cfg.short
        ids = torch.arange(i, i + length) % 61 + 2
        return {"input_ids": ids, "length": length}


class Collator:
    def __init__(self, pad=0):
        self.pad = pad

    def __call__(self, rows):
        width = max(r["length"] for r in rows)
        ids = torch.full((len(rows), width), self.pad)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for k, r in enumerate(rows):
            ids[k, : r["length"]] = r["input_ids"]
            mask[k, : r["length"]] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


class TokenMeter:
    def __init__(self):
        self.seen = 0

    def count(self, inputs):
        self.seen += int(inputs["attention_mask"].sum())


class BudgetCallback(TrainerCallback):
    def __init__(self, meter, budget):
        self.meter, self.budget = meter, budget

    def on_step_end(self, args, state, control, **kwargs):
        if self.meter.seen >= self.budget:
            log.info("token budget spent after %d steps", state.global_step)
            control.should_training_stop = True
        return control


class MeteredTrainer(Trainer):
    def __init__(self, *args, meter, **kwargs):
        super().__init__(*args, **kwargs)
        self.meter = meter

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        self.meter.count(inputs)
        return super().training_step(model, inputs, *args, **kwargs)


def export(trainer, folder):
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(folder)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    cfg = RunConfig()
    out = os.path.join(tempfile.gettempdir(), "sft-out")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1,
                                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    args = TrainingArguments(output_dir=out, use_cpu=True, per_device_train_batch_size=4, max_steps=cfg.max_steps, learning_rate=1e-3,
                             logging_steps=5, save_strategy="no", report_to=[], ddp_timeout=1800, disable_tqdm=True,
                             remove_unused_columns=False, dataloader_num_workers=0, ddp_find_unused_parameters=False,
                             average_tokens_across_devices=False)
    meter = TokenMeter()
    trainer = MeteredTrainer(model=model, args=args, train_dataset=Documents(cfg), data_collator=Collator(), meter=meter,
                             callbacks=[BudgetCallback(meter, cfg.budget)])
    trainer.train()
    export(trainer, os.path.join(out, "final"))
    log.info("rank %d done: %d tokens", trainer.args.process_index, meter.seen)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
