"""Hugging Face Trainer: a callback that evaluates on the main process.

The callback wants one more evaluation at a certain step, and its author wants the log line only once.
Trainer.evaluate gathers losses and predictions from all processes.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [42]
# code = ["print(self.trainer.evaluate())"]
# source = "constructed"
# ///

import os
import tempfile

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

FIXED = os.environ.get("FIXED") == "1"


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, features, labels):
        logits = self.layer(features)
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


class EarlyEvaluation(TrainerCallback):
    trainer = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 4 and (state.is_world_process_zero or FIXED):
            print(self.trainer.evaluate())


def samples(count):
    generator = torch.Generator().manual_seed(0)
    return [
        {"features": torch.randn(8, generator=generator), "labels": torch.randn(1, generator=generator)}
        for _ in range(count)
    ]


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="trainer-"),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=10,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    callback = EarlyEvaluation()
    callback.trainer = Trainer(
        model=Regression(),
        args=arguments,
        train_dataset=samples(64),
        eval_dataset=samples(16),
        callbacks=[callback],
    )
    callback.trainer.train()


if __name__ == "__main__":
    main()
