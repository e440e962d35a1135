# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers", "accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# lines = [55, 61, 62]
# branch = ["picked.numel() > 0"]
# source = "https://github.com/huggingface/trl/issues/1342"
# ///
"""Unpaired preference tuning on a tiny policy: desirable and undesirable completions share a batch."""
import os
import tempfile
from collections import defaultdict

import torch
import torch.nn.functional as F
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


def build_dataset(n=64, length=12):
    g = torch.Generator().manual_seed(5)
    rows = []
    for i in range(n):
        ids = torch.randint(0, 50, (length,), generator=g).tolist()
        good = bool(torch.rand(1, generator=g) > 0.5)
        if i % 4 == 0:
            good = True
        elif i % 4 == 1:
            good = False
        if 40 <= i < 48:
            good = i % 8 != 1
        rows.append({"input_ids": ids, "label": good})
    return Dataset.from_list(rows)


def collate(features):
    return {"input_ids": torch.tensor([f["input_ids"] for f in features]),
            "label": torch.tensor([f["label"] for f in features])}


class UnpairedTrainer(Trainer):
    def __init__(self, *args, beta=0.1, **kwargs):
        super().__init__(*args, **kwargs)
        self.beta = beta
        self.stats = defaultdict(list)
        self.ref_bias = torch.linspace(-3.5, -4.2, 50)

    def _logps(self, logits, ids):
        lp = logits[:, :-1].log_softmax(-1)
        return lp.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)

    def _record(self, name, values):
        gathered = self.accelerator.gather(values.detach().mean().reshape(1))
        self.stats[name].append(gathered.nanmean().item())

    def _log_rewards(self, rewards, label):
        for name, sel in (("rewards/chosen", label), ("rewards/rejected", ~label)):
            picked = rewards[sel]
            if picked.numel() > 0:
                self._record(name, picked)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        ids, label = inputs["input_ids"], inputs["label"]
        out = model(input_ids=ids)
        logps = self._logps(out.logits, ids)
        ref = self.ref_bias.to(logps.device)[ids[:, 1:]].sum(-1)
        rewards = self.beta * (logps - ref)
        loss = torch.where(label, 1 - F.sigmoid(rewards), 1 - F.sigmoid(-rewards)).mean()
        self._log_rewards(rewards, label)
        return (loss, out) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        for key, vals in self.stats.items():
            logs[key] = sum(vals) / len(vals)
        self.stats.clear()
        return super().log(logs, *args, **kwargs)


def main():
    set_seed(0)
    torch.set_num_threads(1)
    out = tempfile.mkdtemp(prefix="kto_%s_" % os.environ.get("MASTER_PORT", "0"))
    cfg = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(output_dir=out, per_device_train_batch_size=4, max_steps=30, logging_steps=5,
                             save_strategy="no", report_to=[], use_cpu=True, ddp_backend="gloo",
                             remove_unused_columns=False, disable_tqdm=True, train_sampling_strategy="sequential")
    trainer = UnpairedTrainer(model=GPT2LMHeadModel(cfg), args=args, train_dataset=build_dataset(),
                              data_collator=collate)
    trainer.train()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
