# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["trl", "transformers", "datasets"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD102"]
# culprits_any = [[0], [1]]
# lines = [50, 53, 68, 69, 70]
# branch = ["sorted(self.pending)", "if valid"]
# source = "https://github.com/huggingface/trl/issues/7310"
# ///
"""A GRPO reward function records "format_accuracy" only for a batch in which some completion has the right format, and
a meter then averages each recorded name over the ranks.  Rank 0 has the name in its table, rank 1 does not."""
import tempfile
import warnings

import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

warnings.filterwarnings("ignore")
WORDS = ["<pad>", "<eos>", "<unk>"] + [f"w{i}" for i in range(61)]


def make_tokenizer():
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def make_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1))


class RewardMeter:
    """Collects named values on each rank and averages them over the ranks."""

    def __init__(self):
        self.pending, self.history, self.group = {}, {}, None

    def log(self, name, value):
        self.pending.setdefault(name, []).append(value)

    def flush(self):
        for name in sorted(self.pending):
            values = self.pending[name]
            mean = torch.tensor(sum(values) / len(values))
            dist.all_reduce(mean, group=self.group)
            self.history.setdefault(name, []).append(mean.item() / dist.get_world_size())
        self.pending.clear()


metrics = RewardMeter()


def has_format(prompt, completion):
    """Only tasks of the "math" family (an odd first word) ask for a format at all."""
    return int(prompt.split()[0][1:]) % 2 == 1 and len(completion) >= 0


def reward_format(prompts, completions, **kwargs):
    valid = [c for p, c in zip(prompts, completions) if has_format(p, c)]
    if valid:
        metrics.log("format_accuracy", len(valid) / len(completions))
    metrics.flush()
    return [float(len(set(c.split()))) for c in completions]


def main():
    dataset = Dataset.from_dict({"prompt": [f"w{i % 50} w{(i * 7) % 50}" for i in range(64)]})
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
        max_steps=5, use_cpu=True, report_to=[], save_strategy="no", logging_steps=1, bf16=False,
        gradient_checkpointing=False, disable_tqdm=True)
    trainer = GRPOTrainer(model=make_model(), reward_funcs=reward_format, args=args, train_dataset=dataset,
                          processing_class=make_tokenizer())
    metrics.group = dist.new_group(backend="gloo")
    trainer.train()
    print(metrics.history)


if __name__ == "__main__":
    main()
