# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["trl", "transformers", "datasets", "tokenizers"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [1]
# culprits_any = [[0]]
# lines = [48, 59, 88, 60]
# branch = ["lengths", "in prompt"]
# source = "https://github.com/huggingface/trl/issues/7310"
# ///
"""GRPO with trl on a tiny GPT-2: the style reward compares a completion's word lengths with those of all processes."""
import logging
import os
import statistics
import tempfile
from pathlib import Path

SCRATCH = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
os.environ["HF_HOME"] = str(SCRATCH / "hf")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from accelerate.utils import reduce
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

log = logging.getLogger("style")
WORDS = ["<pad>", "<eos>", "<unk>", "say", "it", "in", "verse", "prose", "sun", "moon", "river", "mountain", "lantern", "a", "the", "quietly"]


def make_tokenizer():
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")


class StyleReward:
    """Rewards verse completions whose words are about as long as everybody's; prose gets a flat reward."""
    __name__ = "style"

    def words(self, completion):
        return [w for w in completion.split() if not w.startswith("<")]

    def normalized(self, raw, lengths):
        pooled = reduce(torch.tensor([sum(lengths), float(len(lengths))]), reduction="sum")
        centre = float(pooled[0] / pooled[1])
        return [value - abs(value - centre) for value in raw]

    def __call__(self, prompts, completions, **kwargs):
        lengths, raw = [], []
        for prompt, completion in zip(prompts, completions):
            words = self.words(completion)
            raw.append(statistics.fmean(map(len, words)) if words else 0.0)
            if "verse" in prompt:
                lengths.append(raw[-1])
        if lengths:
            return self.normalized(raw, lengths)
        return [0.1] * len(completions)


def prompts(n):
    """One block per style, as the annotators delivered them."""
    styles = ["verse", "verse", "verse", "prose"]
    return Dataset.from_list([{"prompt": f"say it in {styles[i % len(styles)]}"} for i in range(n)])


class OrderedGRPO(GRPOTrainer):
    def _get_train_sampler(self, dataset=None):
        """Prompts in the order of the file, each one repeated for its generations."""
        order = [i for i in range(len(self.train_dataset)) for _ in range(self.num_generations)]
        return order * 4


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.WARNING, format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1,
                                       eos_token_id=1, pad_token_id=0))
    args = GRPOConfig(output_dir=str(SCRATCH / "grpo"), per_device_train_batch_size=2, num_generations=2, max_completion_length=6,
                      max_steps=8, learning_rate=1e-3, use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_steps=1,
                      disable_tqdm=True, beta=0.0, gradient_checkpointing=False, ddp_backend="gloo")
    trainer = OrderedGRPO(model=model, reward_funcs=StyleReward(), args=args, train_dataset=prompts(16), processing_class=make_tokenizer())
    trainer.train()
    log.info("reward history %s", [round(h["reward"], 3) for h in trainer.state.log_history if "reward" in h])


if __name__ == "__main__":
    main()
