# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["trl", "transformers", "datasets", "accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits_any = [[0], [1]]
# lines = [71, 72]
# branch = ["refusal.any()"]
# source = "https://github.com/huggingface/trl/issues/2468"
# ///
"""Supervised fine-tuning with trl; logs the token loss of the refusal examples separately."""
import logging
import os
import random
import tempfile
from dataclasses import dataclass

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

log = logging.getLogger("safety-sft")
WORDS = "please tell me how to bake bread fix bike write poem sort list paint wall plant tree cannot help sorry with that".split()


@dataclass
class Recipe:
    rows: int = 96
    per_device: int = 2
    steps: int = 40
    refusals_from: int = 61


def make_tokenizer():
    vocab = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    for w in WORDS:
        vocab.setdefault(w, len(vocab))
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def make_rows(recipe: Recipe):
    rng = random.Random(33)
    rows = []
    for i in range(recipe.rows):
        words = [rng.choice(WORDS[:16]) for _ in range(9)]
        if i >= recipe.refusals_from and i % 4 == 1:
            words = words[:4] + ["sorry", "cannot", "help", "with", "that"]
        rows.append({"text": " ".join(words)})
    return Dataset.from_list(rows)


class RefusalAwareTrainer(SFTTrainer):
    """Adds the rate of refusals in the batch to the logs."""

    def __init__(self, *args, refusal_id: int, **kw):
        super().__init__(*args, **kw)
        self.refusal_id = refusal_id
        self.refusal_trace = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        self._note_refusals(inputs["input_ids"], loss.detach())
        return (loss, outputs) if return_outputs else loss

    def _note_refusals(self, ids, loss):
        refusal = (ids == self.refusal_id).any(-1)
        if refusal.any():
            rate = self.accelerator.gather_for_metrics(refusal.float().mean().repeat(2) * loss)
            self.refusal_trace.append((self.state.global_step, rate.mean().item()))


class OrderedSFT(RefusalAwareTrainer):
    def _get_train_sampler(self, *args, **kw):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def main():
    logging.basicConfig(level=logging.WARNING)
    recipe = Recipe()
    out = os.path.join(tempfile.gettempdir(), "sft_" + os.environ.get("MASTER_PORT", "0"))
    os.environ.setdefault("HF_DATASETS_CACHE", out + "_cache")
    tok = make_tokenizer()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tok), n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1))
    args = SFTConfig(
        output_dir=out, use_cpu=True, bf16=False, ddp_backend="gloo", per_device_train_batch_size=recipe.per_device,
        max_steps=recipe.steps, logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, max_length=16,
        dataset_text_field="text", gradient_checkpointing=False, ddp_find_unused_parameters=False,
    )
    trainer = OrderedSFT(
        model=model, args=args, train_dataset=make_rows(recipe), processing_class=tok,
        refusal_id=tok.convert_tokens_to_ids("cannot"),
    )
    trainer.train()
    log.warning("refusal trace %s", trainer.refusal_trace[-3:])


if __name__ == "__main__":
    main()
