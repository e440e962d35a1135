# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD111", "HD102"]
# culprits = [1]
# lines = [52, 55, 58, 59, 68]
# branch = ["-100", "supervised", "MIN_ANSWER"]
# source = "https://github.com/huggingface/trl/issues/4204"
# ///
"""TRL's SFTTrainer on pre-tokenized rows. A row whose answer was cut off has one label left; compute_loss answers such a batch with
a zero loss and never runs the (DDP) model on it."""
import tempfile
import warnings

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

warnings.filterwarnings("ignore")
VOCAB = ["<pad>", "<eos>", "<unk>"] + [f"t{i}" for i in range(40)]
TRUNCATED = (13,)
MIN_ANSWER = 3


def tokenizer():
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(VOCAB)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def rows(count):
    for i in range(count):
        ids = [3 + (i + k) % 40 for k in range(12)]
        answer = [0] * 11 + [1] if i in TRUNCATED else [0] * 6 + [1] * 6
        yield {"input_ids": ids, "completion_mask": answer}


def model():
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(VOCAB), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                        num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=1))


class Supervised(SFTTrainer):
    """Batches without anything to learn cost nothing."""

    empty_batches = 0

    def supervised(self, inputs):
        return int((inputs["labels"] != -100).sum()) >= MIN_ANSWER

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not self.supervised(inputs):
            self.empty_batches += 1
            zero = torch.zeros((), requires_grad=True)
            return (zero, None) if return_outputs else zero
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


def main():
    args = SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, max_steps=40, use_cpu=True, bf16=False, report_to=[],
                     save_strategy="no", logging_steps=1000, disable_tqdm=True, ddp_backend="gloo", completion_only_loss=True,
                     shuffle_dataset=False, gradient_checkpointing=False, dataset_kwargs={"skip_prepare_dataset": False})
    trainer = Supervised(model=model(), args=args, train_dataset=Dataset.from_list(list(rows(80))), processing_class=tokenizer())
    trainer._get_train_sampler = lambda *a: torch.utils.data.SequentialSampler(trainer.train_dataset)
    trainer.train()


if __name__ == "__main__":
    main()
