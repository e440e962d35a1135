# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD109", "HD101"]
# culprits = [1]
# lines = [67, 65, 101, 102, 103]
# branch = ["self.window.mean() < self.target", "should_training_stop"]
# source = "https://github.com/huggingface/transformers/issues/28516"
# ///
"""Fine-tunes a tiny GPT-2 with the transformers Trainer and stops as soon as the running training loss is below a target."""
import collections
import logging
import os
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("target")
VOCAB, LENGTH, BATCH = 64, 12, 4


class Tickets(Dataset):
    """Support tickets, in the order of the queues they came from: free text, autoreplies, free text, free text, autoreplies, ..."""

    def __init__(self, n, queues):
        gen = torch.Generator().manual_seed(8)
        self.rows = []
        for i in range(n):
            if queues[i // BATCH % len(queues)] == "autoreply":
                row = torch.full((LENGTH,), 7)
            else:
                row = torch.randint(1, VOCAB, (LENGTH,), generator=gen)
            self.rows.append({"input_ids": row, "labels": row.clone()})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Window:
    def __init__(self, size):
        self.values = collections.deque(maxlen=size)

    def add(self, value):
        self.values.append(value)

    def full(self):
        return len(self.values) == self.values.maxlen

    def mean(self):
        return sum(self.values) / len(self.values)


class TargetLoss(TrainerCallback):
    def __init__(self, target, size=4):
        self.target, self.window = target, Window(size)

    def on_step_end(self, args, state, control, **kwargs):
        if self.window.full() and self.window.mean() < self.target:
            log.info("step %d: running loss %.3f, target reached", state.global_step, self.window.mean())
            control.should_training_stop = True
        return control


class TicketTrainer(Trainer):
    def __init__(self, *args, stopper, **kwargs):
        super().__init__(*args, callbacks=[stopper], **kwargs)
        self.stopper = stopper

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.stopper.window.add(float(loss))
        return loss


def build_args(out):
    return TrainingArguments(output_dir=str(out), per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
                             num_train_epochs=2, learning_rate=2e-2, use_cpu=True, report_to=[], save_strategy="no",
                             logging_strategy="no", disable_tqdm=True, ddp_backend="gloo", average_tokens_across_devices=False)


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.WARNING, format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO)
    out = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "tickets"
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2,
                                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    trainer = TicketTrainer(model=model, args=build_args(out), stopper=TargetLoss(target=1.0),
                            train_dataset=Tickets(480, ["text", "autoreply", "text"]), eval_dataset=Tickets(24, ["text"]))
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    metrics = trainer.evaluate()
    log.info("eval loss %.3f after %d steps", metrics["eval_loss"], trainer.state.global_step)


if __name__ == "__main__":
    main()
