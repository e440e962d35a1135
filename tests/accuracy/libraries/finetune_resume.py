# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits = [2]
# culprits_any = [[0, 1]]
# lines = [74, 76, 52, 54]
# branch = ["resume", "(folder /", "complete", "self.state.global_step", "max_steps"]
# source = "https://github.com/hiyouga/LlamaFactory/issues/655"
# ///
"""Fine-tunes a tiny sequence classifier with transformers' Trainer in two legs on two machines with local scratch disks."""
import logging
import os
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

log = logging.getLogger("finetune")
RANKS_PER_MACHINE = 2


class Tickets(Dataset):
    """Support tickets as token ids; the class follows from the first tokens."""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 96, (size, 10), generator=g)
        self.labels = (self.ids[:, 1] + self.ids[:, 2]) % 3

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(10, dtype=torch.long), "labels": self.labels[i]}


def scratch():
    """The local disk of this machine."""
    machine = int(os.environ["RANK"]) // RANKS_PER_MACHINE
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"machine{machine}" / "tickets"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def newest_checkpoint(root):
    complete = []
    for folder in root.glob("checkpoint-*"):
        if (folder / "trainer_state.json").exists():
            complete.append((int(folder.name.split("-")[1]), str(folder)))
    return max(complete)[1] if complete else None


def build_model():
    set_seed(13)
    config = BertConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=16, num_labels=3)
    return BertForSequenceClassification(config)


def arguments(root, max_steps):
    return TrainingArguments(
        output_dir=str(root), max_steps=max_steps, per_device_train_batch_size=4, per_device_eval_batch_size=8,
        save_steps=4, logging_steps=50, report_to=[], use_cpu=True, disable_tqdm=True, ddp_backend="gloo",
        dataloader_num_workers=0, learning_rate=1e-3, seed=13, average_tokens_across_devices=False,
    )


def leg(number, root, max_steps, train_set, valid_set):
    trainer = Trainer(model=build_model(), args=arguments(root, max_steps), train_dataset=train_set, eval_dataset=valid_set)
    resume = newest_checkpoint(root)
    log.info("leg %d up to step %d, resuming from %s", number, max_steps, resume)
    trainer.train(resume_from_checkpoint=resume)
    trainer.accelerator.wait_for_everyone()
    scores = trainer.evaluate()
    log.info("leg %d: validation loss %.4f", number, scores["eval_loss"])
    return scores


def main():
    logging.basicConfig(level=logging.INFO, format=f"r{os.environ['RANK']} %(message)s")
    root = scratch()
    train_set, valid_set = Tickets(240, seed=1), Tickets(48, seed=2)
    plan = [4, 10]  # a short leg in the evening queue, the long one at night
    for number, max_steps in enumerate(plan, start=1):
        leg(number, root, max_steps, train_set, valid_set)


if __name__ == "__main__":
    main()
