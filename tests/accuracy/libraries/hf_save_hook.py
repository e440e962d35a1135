# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [0]
# lines = [52, 62, 63, 81]
# branch = ["is_world_process_zero", "should_save", "is_world_process_zero()"]
# source = "https://github.com/oumi-ai/oumi/pull/323"
# ///
"""transformers Trainer whose save_model also writes the label map: only on the main process, and with a barrier at the end
of the writing so that nobody reads it too early."""
import json
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

warnings.filterwarnings("ignore")


class Blobs(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"x": torch.randn(6, generator=g) + i % 3, "labels": torch.tensor(i % 3)}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class LabelMap:
    def __init__(self, names):
        self.names = names

    def write(self, folder):
        with open(os.path.join(folder, "labels.json"), "w") as f:
            json.dump(self.names, f)
        dist.barrier()


class LabelledTrainer(Trainer):
    def __init__(self, *args, label_map, **kwargs):
        super().__init__(*args, **kwargs)
        self.label_map = label_map

    def save_model(self, output_dir=None, _internal_call=False):
        super().save_model(output_dir, _internal_call)
        if self.is_world_process_zero():
            self.label_map.write(output_dir or self.args.output_dir)


class LossHistory(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.losses.append(logs["loss"])


def main():
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=40, use_cpu=True, report_to=[],
                             save_strategy="steps", save_steps=6, save_total_limit=1, logging_steps=5, disable_tqdm=True,
                             ddp_backend="gloo", save_only_model=True)
    trainer = LabelledTrainer(Classifier(), args, train_dataset=Blobs(), callbacks=[LossHistory()],
                              label_map=LabelMap(["a", "b", "c"]))
    trainer.train()


if __name__ == "__main__":
    main()
