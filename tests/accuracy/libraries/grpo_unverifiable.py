# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate", "datasets", "transformers", "trl"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [1]
# lines = [66, 84, 86]
# branch = ["unverifiable", "if unverifiable"]
# source = "https://github.com/huggingface/trl/issues/3933"
# ///
"""GRPO on a tiny model with a verifiable reward; problems whose reference answer is missing are written to a review queue
that the main process merges."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("grpo")

WORDS = ["<pad>", "<eos>", "<unk>"] + [str(n) for n in range(20)] + ["plus", "times", "is", "what", "the", "answer"]


def build_tokenizer():
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def build_problems(count):
    rows = []
    for i in range(count):
        a, b = i % 7, (3 * i) % 9
        rows.append({"prompt": f"what is {a} plus {b}", "reference": str(a + b), "source": "arith"})
    rows[10] = {"prompt": "what is 3 times 19", "reference": "", "source": "scraped"}  # the answer key had a hole here
    return Dataset.from_list(rows)


@dataclass
class ReviewQueue:
    """Per-process jsonl parts, merged by the main process."""
    folder: Path
    state: PartialState = field(default_factory=PartialState)
    written: int = 0

    @property
    def part(self):
        return self.folder / f"part-{self.state.process_index}.jsonl"

    def push(self, items):
        with open(self.part, "a") as f:
            for item in items:
                f.write(json.dumps(item) + "\n")
                self.written += 1

    def merge(self):
        self.state.wait_for_everyone()
        if self.state.is_main_process:
            rows = [line for p in sorted(self.folder.glob("part-*.jsonl")) for line in p.read_text().splitlines()]
            (self.folder / "review.jsonl").write_text("\n".join(rows))


class ExactAnswer:
    """Reward 1 when the reference shows up in the completion; unverifiable problems go to the queue and score 0."""
    __name__ = "exact_answer"

    def __init__(self, queue):
        self.queue = queue
        self.calls = 0

    def __call__(self, prompts, completions, reference, **columns):
        self.calls += 1
        unverifiable = [p for p, r in zip(prompts, reference) if not r]
        scores = [float(bool(r) and r in c.split()) for c, r in zip(completions, reference)]
        if unverifiable:
            self.queue.push({"prompt": p} for p in unverifiable)
            self.queue.merge()
        return scores


def length_penalty(completions, **columns):
    return [-0.05 * len(c.split()) for c in completions]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(os.environ.get("REVIEW_DIR", tempfile.gettempdir())) / "review"
    folder.mkdir(exist_ok=True, parents=True)
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=1,
                                       bos_token_id=1, pad_token_id=0))
    args = GRPOConfig(output_dir=str(folder / "out"), per_device_train_batch_size=2, num_generations=2, max_completion_length=4,
                      max_steps=12, learning_rate=1e-4, use_cpu=True, bf16=False, report_to=[], save_strategy="no", shuffle_dataset=False,
                      disable_tqdm=True, logging_steps=2, ddp_backend="gloo", ddp_timeout=1800, beta=0.0, gradient_checkpointing=False)
    queue = ReviewQueue(folder)
    trainer = GRPOTrainer(model=model, processing_class=tokenizer, args=args, train_dataset=build_problems(60),
                          reward_funcs=[ExactAnswer(queue), length_penalty])
    trainer.train()
    queue.merge()
    log.info("done, %d problems for review", queue.written)


if __name__ == "__main__":
    main()
