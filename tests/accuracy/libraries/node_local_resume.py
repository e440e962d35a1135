# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits_any = [[0], [1]]
# lines = [67, 68, 97, 99, 107]
# branch = ["found is None or not Path(found, \"trainer_state.json\").is_file()", "not Path(found, \"trainer_state.json\").is_file()", "resume_from_checkpoint is not None", "update_step in range(num_update_steps_trained, num_update_steps_per_epoch)", "self.control.should_epoch_stop or self.control.should_training_stop", "epoch in range(epochs_trained, num_train_epochs)", "self.control.should_save", "state.global_step >= state.max_steps"]
# source = "https://github.com/ByteDance-Seed/VeOmni/pull/1179"
# ///
"""Two-phase fine-tuning with transformers.Trainer; each node keeps its run folder on its local disk."""
import logging
import os
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

log = logging.getLogger("finetune")


class Parity(Dataset):
    def __init__(self, n, width=10):
        gen = torch.Generator().manual_seed(4)
        self.bits = torch.randint(0, 2, (n, width), generator=gen).float()

    def __len__(self):
        return len(self.bits)

    def __getitem__(self, i):
        return {"bits": self.bits[i], "labels": self.bits[i].sum().remainder(2)}


class ParityNet(nn.Module):
    def __init__(self, width=10, hidden=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, bits, labels=None):
        logits = self.body(bits).squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        return {"loss": loss, "logits": logits}


class NodeDisk:
    """Scratch space of the host on which this process runs."""

    def __init__(self, run_id):
        per_node = int(os.environ.get("PROCS_PER_NODE", "1"))
        self.name = f"node{int(os.environ['RANK']) // per_node}"
        self.root = Path(tempfile.gettempdir()) / f"{run_id}_{self.name}"

    def run_folder(self):
        path = self.root / "parity"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def latest(self):
        found = get_last_checkpoint(str(self.run_folder()))
        if found is None or not Path(found, "trainer_state.json").is_file():
            log.info("%s: no complete checkpoint here, from the start", self.name)
            return None
        log.info("%s: resuming from %s", self.name, Path(found).name)
        return found


def build(disk, max_steps):
    args = TrainingArguments(
        output_dir=str(disk.run_folder()),
        max_steps=max_steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        save_strategy="steps",
        save_steps=8,
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        seed=1,
    )
    torch.manual_seed(0)
    return Trainer(model=ParityNet(), args=args, train_dataset=Parity(256), eval_dataset=Parity(16))


def phase(name, disk, max_steps):
    trainer = build(disk, max_steps)
    out = trainer.train(resume_from_checkpoint=disk.latest())
    log.info("%s: %s at step %d, loss %.4f", disk.name, name, out.global_step, out.training_loss)
    dist.barrier()
    return trainer


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    disk = NodeDisk(f"parity_{os.environ['MASTER_PORT']}")
    phase("first phase", disk, max_steps=8)
    trainer = phase("second phase", disk, max_steps=20)
    metrics = trainer.evaluate()
    log.info("eval loss %.4f", metrics["eval_loss"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
