# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["trl", "transformers", "datasets", "tokenizers"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits = [1]
# lines = [92, 84, 85, 77, 78]
# branch = ["judged.sum()"]
# source = "https://github.com/huggingface/trl/pull/2890"
# ///
"""Supervised fine-tuning of a tiny Llama with trl's SFTTrainer and a report of the token accuracy."""
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from torch.utils.data import Sampler
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = [f"w{i}" for i in range(60)]


def build_tokenizer():
    vocab = {t: i for i, t in enumerate(["<pad>", "<eos>", "<unk>"] + WORDS)}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def build_model(tokenizer):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
                         pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    return LlamaForCausalLM(config)


def dialogues(count=160):
    """Questions and answers; the old export has a stretch of tickets that were closed with one word."""
    g = torch.Generator().manual_seed(5)
    rows = {"prompt": [], "completion": []}
    for i in range(count):
        n = 1 if 52 <= i < 56 else int(torch.randint(4, 20, (1,), generator=g))
        picks = [WORDS[int(k)] for k in torch.randint(0, 60, (8 + n,), generator=g)]
        rows["prompt"].append(" ".join(picks[:8]))
        rows["completion"].append(" " + " ".join(picks[8:]))
    return Dataset.from_dict(rows)


class InOrder(Sampler):
    """Tickets by date: every process takes the next ones in turn."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(range(len(self.data)))

    def __len__(self):
        return len(self.data)


class ReportingTrainer(SFTTrainer):
    """Every few steps each process leaves its token accuracy in a file; the main process merges the files."""

    def _get_train_sampler(self, train_dataset=None):
        return InOrder(train_dataset if train_dataset is not None else self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        if self.state.global_step % self.args.logging_steps == 0:
            self.token_report(model, inputs)
        return super().training_step(model, inputs, *args, **kwargs)

    @torch.no_grad()
    def token_report(self, model, inputs):
        labels = inputs["labels"][:, 1:]
        judged = labels != -100
        if judged.sum() < 3 * len(labels):
            return None  # too little to say anything
        logits = self.accelerator.unwrap_model(model)(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        right = (logits[:, :-1].argmax(-1) == labels)[judged]
        step, folder = self.state.global_step, Path(self.args.output_dir) / "reports"
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{step:05d}-{self.accelerator.process_index}.json"
        part.write_text(json.dumps([int(right.sum()), right.numel()]))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            counts = [json.loads(p.read_text()) for p in folder.glob(f"{step:05d}-*.json")]
            self.log({"token_accuracy": sum(c[0] for c in counts) / sum(c[1] for c in counts)})


def main():
    tokenizer = build_tokenizer()
    root = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), "sft")
    args = SFTConfig(output_dir=root, max_steps=12, per_device_train_batch_size=4, logging_steps=3, report_to=[],
                     use_cpu=True, disable_tqdm=True, save_strategy="no", bf16=False, dataset_num_proc=None,
                     gradient_checkpointing=False, learning_rate=1e-3)
    trainer = ReportingTrainer(model=build_model(tokenizer), args=args, train_dataset=dialogues(), processing_class=tokenizer)
    trainer.train()


if __name__ == "__main__":
    main()
