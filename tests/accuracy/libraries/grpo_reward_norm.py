# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [1]
# lines = [76, 83, 84, 85, 100]
# branch = ["not scores"]
# source = "https://github.com/huggingface/trl/issues/3933"
# ///
"""trl GRPO with a reward function that standardises over the whole job. It returns early when a rank's batch has nothing to grade, before
the reduction of the moments; one rank gets a prompt without a reference answer in the third step."""
import logging
import tempfile
from dataclasses import dataclass

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

log = logging.getLogger("grpo")

WORDS = "<pad> <eos> <unk> add two three four five one plus and is the sum number tell me about sea".split()


@dataclass
class TaskConfig:
    prompts: int = 60
    chat_at: tuple = (7,)
    completion: int = 4
    generations: int = 2
    max_steps: int = 200


def build_tokenizer():
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")


def build_model(tokenizer):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.eos_token_id))


def build_dataset(cfg):
    numbers = ["one", "two", "three", "four", "five"]
    rows = []
    for i in range(cfg.prompts):
        if i in cfg.chat_at:
            rows.append({"prompt": "tell me about the sea", "reference": ""})
        else:
            rows.append({"prompt": f"add {numbers[i % 5]} and {numbers[i % 3]}", "reference": numbers[(i % 5 + i % 3) % 5]})
    return Dataset.from_list(rows)


class StandardisedReward:
    """Overlap with the reference, standardised with the moments of the whole job."""

    __name__ = "standardised_reward"

    def __init__(self):
        self.calls = 0

    def grade(self, completion, reference):
        words = completion.split()
        return words.count(reference) + 0.01 * len(words)

    def moments(self, scores):
        t = torch.tensor([sum(scores), sum(s * s for s in scores), float(len(scores))], device=PartialState().device)
        total, squares, count = reduce(t, reduction="sum").tolist()
        mean = total / count
        return mean, max(squares / count - mean ** 2, 1e-6) ** 0.5

    def __call__(self, prompts, completions, reference, **kwargs):
        self.calls += 1
        scores = [self.grade(c, r) for c, r in zip(completions, reference) if r]
        if not scores:
            return [0.0] * len(completions)
        mean, std = self.moments(scores)
        return [(self.grade(c, r) - mean) / std for c, r in zip(completions, reference)]


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    cfg = TaskConfig()
    tokenizer = build_tokenizer()
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="grpo-"), use_cpu=True, ddp_backend="gloo", bf16=False, per_device_train_batch_size=cfg.generations,
        num_generations=cfg.generations, max_completion_length=cfg.completion, max_steps=cfg.max_steps, shuffle_dataset=False, logging_steps=1,
        gradient_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-4, beta=0.0)
    trainer = GRPOTrainer(model=build_model(tokenizer), reward_funcs=StandardisedReward(), args=args, train_dataset=build_dataset(cfg),
                          processing_class=tokenizer)
    trainer.train()
    log.info("finished after %d steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
