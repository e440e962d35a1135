# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [1]
# lines = [53, 54, 70, 71]
# branch = ["self.preempted", "preempted", "should_training_stop", "enumerate(batch_samples)"]
# source = "https://github.com/Red-Hat-AI-Innovation-Team/training_hub/pull/145"
# ///
"""The scheduler announces preemption with SIGUSR1, which reaches one rank between two steps before the other sees anything.
Its callback stops the Trainer there; the other rank trains on and waits for its gradients."""
import os
import signal
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Numbers(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        return {"x": torch.full((8,), float(i % 7)), "labels": torch.tensor(float(i % 2))}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, labels=None):
        out = self.net(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class PreemptionCallback(TrainerCallback):
    """Stops cleanly after the running step once the scheduler has asked for the machine."""

    def __init__(self):
        self.preempted = False
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, *_):
        self.preempted = True

    def on_step_end(self, args, state, control, **kwargs):
        if self.preempted:
            control.should_training_stop = True
        return control


class FakeScheduler(TrainerCallback):
    """Stands for the cluster: node 1 is wanted back at step 6."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 6 and args.process_index == 1:
            os.kill(os.getpid(), signal.SIGUSR1)


def main():
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=60, use_cpu=True, report_to=[],
                             save_strategy="no", logging_steps=500, disable_tqdm=True, dataloader_num_workers=0, ddp_backend="gloo")
    trainer = Trainer(Regressor(), args, train_dataset=Numbers(), callbacks=[FakeScheduler(), PreemptionCallback()])
    trainer.train()
    dist.barrier()
    if trainer.is_world_process_zero():
        trainer.save_model()


if __name__ == "__main__":
    main()
