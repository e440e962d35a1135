# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets", "transformers", "trl"]
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits = [1]
# lines = [56, 77, 78, 79, 80]
# branch = ["not scored", "a is not None"]
# source = "https://github.com/huggingface/trl/issues/7310"
# ///
"""GRPO with a reward that is normalized by running numbers of all processes; prompts without a reference answer are not
scored."""
import os
import tempfile

import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

WORDS = ["<pad>", "<eos>", "<unk>", "add", "two", "and", "three", "five", "six", "one", "four", "seven", "is", "what"]


def make_tokenizer():
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                   padding_side="left")


def make_model():
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
                                        pad_token_id=0, eos_token_id=1, bos_token_id=None))


def make_prompts(n):
    rows = []
    for i in range(n):
        a, b = WORDS[3 + i % 8], WORDS[4 + i % 7]
        # a few rows came from the forum dump, which has questions only
        rows.append({"prompt": f"what is {a} and {b}", "answer": None if i % 24 == 10 else WORDS[4 + (i * 3) % 9]})
    return Dataset.from_list(rows)


class RunningScale:
    """Mean and square of all rewards seen so far, over all processes."""

    def __init__(self):
        self.sums = torch.zeros(3)

    def update(self, values):
        fresh = torch.tensor([len(values), sum(values), sum(v * v for v in values)], dtype=torch.float32)
        dist.all_reduce(fresh)
        self.sums += fresh

    @property
    def std(self):
        count, total, square = self.sums.tolist()
        return max((square / count - (total / count) ** 2), 1e-4) ** 0.5


class AnswerReward:
    __name__ = "answer_reward"

    def __init__(self, length_penalty=0.05):
        self.length_penalty = length_penalty
        self.scale = RunningScale()

    def score(self, completion, answer):
        words = completion.split()
        return float(answer in words) - self.length_penalty * len(words)

    def __call__(self, completions, answer, **kwargs):
        scored = {i: self.score(c, a) for i, (c, a) in enumerate(zip(completions, answer)) if a is not None}
        if not scored:
            return [0.0] * len(completions)
        self.scale.update(list(scored.values()))
        return [scored.get(i, 0.0) / self.scale.std for i in range(len(completions))]


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = GRPOConfig(output_dir=os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), "grpo"), use_cpu=True,
                        per_device_train_batch_size=4, num_generations=4, max_completion_length=6, max_steps=20,
                        learning_rate=1e-3, logging_steps=5, save_strategy="no", report_to=[], bf16=False,
                        gradient_checkpointing=False, shuffle_dataset=False, disable_tqdm=True, ddp_backend="gloo",
                        ddp_timeout=1800, beta=0.0)
    trainer = GRPOTrainer(model=make_model(), args=config, reward_funcs=[AnswerReward()], train_dataset=make_prompts(96),
                          processing_class=make_tokenizer())
    trainer.train()
    trainer.accelerator.print("finished", trainer.state.global_step)


if __name__ == "__main__":
    main()
