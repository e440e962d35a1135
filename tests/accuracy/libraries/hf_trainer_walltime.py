# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers", "datasets"]
# outcome = "hang"
# cause = "HD102"
# culprits = [1]
# lines = [46, 47, 87, 90, 106, 107]
# branch = ["should_training_stop", "expired()", "self.seen"]
# source = "https://github.com/Red-Hat-AI-Innovation-Team/training_hub/pull/145"
# ///
"""A transformers TrainerCallback stops training when the node announces its preemption by SIGTERM, which here reaches
only the process of rank 1.  That rank leaves the training loop and begins the closing report."""
import os
import signal
import tempfile
import threading
import warnings

import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

warnings.filterwarnings("ignore")


class PreemptionGuard:
    """Notes that the scheduler wants the node back."""

    def __init__(self):
        self.seen = False
        signal.signal(signal.SIGUSR1, self.note)

    def note(self, signum, frame):
        self.seen = True

    def expired(self):
        return self.seen


class StopOnPreemption(TrainerCallback):
    def __init__(self, guard):
        self.guard = guard

    def on_step_end(self, args, state, control, **kwargs):
        if self.guard.expired():
            control.should_training_stop = True
        return control


class NodeManager(threading.Thread):
    """Plays the cluster: tells one process after a few steps."""

    def __init__(self, rank):
        super().__init__(daemon=True)
        self.rank = rank
        self.go = threading.Event()

    def run(self):
        self.go.wait()
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)


class StepTicker(TrainerCallback):
    def __init__(self, manager, at):
        self.manager, self.at = manager, at

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.at:
            self.manager.go.set()


def make_dataset(n):
    gen = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 100, (n, 12), generator=gen)
    return Dataset.from_dict({"input_ids": ids.tolist(), "attention_mask": [[1] * 12] * n,
                              "labels": [int(v) % 2 for v in ids[:, 0]]})


def make_model():
    return BertForSequenceClassification(BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, num_labels=2))


def report(trainer, group):
    """How far each rank came, over a group for such messages."""
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, trainer.state.global_step, group=group)
    if trainer.is_world_process_zero():
        print("steps", steps)


def main():
    torch.set_num_threads(1)
    guard, manager = PreemptionGuard(), NodeManager(int(os.environ["RANK"]))
    manager.start()
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=400, use_cpu=True, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, ddp_backend="gloo", seed=1,
        average_tokens_across_devices=False)
    trainer = Trainer(model=make_model(), args=args, train_dataset=make_dataset(512),
                      callbacks=[StepTicker(manager, 6), StopOnPreemption(guard)])
    messages = dist.new_group(backend="gloo")
    trainer.train()
    report(trainer, messages)


if __name__ == "__main__":
    main()
