# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109", "HD106"]
# culprits = [1]
# lines = [102]
# branch = ["self.window.settled()", "len(self.values) == self.values.maxlen and self.spread() < self.tolerance", "self.spread() < self.tolerance"]
# source = "https://github.com/huggingface/transformers/issues/28516"
# ///
"""Fine-tune a small sentiment scorer on a mix of review sources with the HF Trainer."""
import logging
import os
import tempfile
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("sentiment")


@dataclass
class RunConfig:
    rows: int = 2400
    width: int = 16
    batch_size: int = 4
    max_steps: int = 150
    plateau_steps: int = 12
    plateau_tolerance: float = 2e-3


class ReviewMix(Dataset):
    """Interleaves blocks of forum posts, templated vendor blurbs and transcripts."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(11)
        self.x = torch.randn(cfg.rows, cfg.width, generator=g)
        self.y = (self.x.sum(-1) + 0.7 * torch.randn(cfg.rows, generator=g)).unsqueeze(-1)
        self.block = cfg.batch_size
        template = torch.full((cfg.width,), 0.05)
        for start in range(self.block, cfg.rows, 3 * self.block):
            self.x[start:start + self.block] = template
            self.y[start:start + self.block] = 0.5

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Scorer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)

    def forward(self, x, labels=None):
        out = self.head(self.body(x))
        loss = nn.functional.mse_loss(out, labels) if labels is not None else None
        return {"loss": loss, "logits": out}


class LossWindow:
    def __init__(self, size, tolerance):
        self.values = deque(maxlen=size)
        self.tolerance = tolerance

    def push(self, value):
        self.values.append(value)

    def spread(self):
        return max(self.values) - min(self.values)

    def settled(self):
        return len(self.values) == self.values.maxlen and self.spread() < self.tolerance


class ReviewTrainer(Trainer):
    def __init__(self, *args, window, **kwargs):
        super().__init__(*args, **kwargs)
        self.window = window

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, out = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.window.push(float(loss.detach()))
        return (loss, out) if return_outputs else loss


class PlateauCallback(TrainerCallback):
    def __init__(self, window):
        self.window = window

    def on_step_end(self, args, state, control, **kwargs):
        if self.window.settled():
            log.info("loss settled at step %d", state.global_step)
            control.should_training_stop = True
        return control


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    cfg = RunConfig()
    torch.manual_seed(3)
    out = tempfile.mkdtemp(prefix=f"sentiment-{os.environ['MASTER_PORT']}-")
    args = TrainingArguments(
        output_dir=out, use_cpu=True, max_steps=cfg.max_steps, learning_rate=2e-5,
        per_device_train_batch_size=cfg.batch_size, save_strategy="no", report_to=[],
        logging_steps=500, disable_tqdm=True, ddp_backend="gloo", optim="sgd",
    )
    data = ReviewMix(cfg)
    window = LossWindow(cfg.plateau_steps, cfg.plateau_tolerance)
    trainer = ReviewTrainer(Scorer(cfg.width), args, train_dataset=data, window=window,
                            callbacks=[PlateauCallback(window)])
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    log.info("finished at step %d", trainer.state.global_step)


if __name__ == "__main__":
    main()
