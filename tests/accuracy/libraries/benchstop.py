# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109", "HD401"]
# culprits_any = [[0], [1, 2]]
# lines = [35, 54, 60, 61, 72]
# branch = ["value is None", "self.stale >= self.patience", "not state.is_world_process_zero", "control.should_training_stop"]
# source = "https://github.com/axolotl-ai-cloud/axolotl/pull/537"
# ///
"""Fine-tuning with a small multiple choice benchmark after each evaluation, stopping when it gets no better."""
import os
import tempfile

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 60, (n, 10), generator=g)
    labels = (ids.float().mean(1) > 31).long()
    return Dataset.from_dict({"input_ids": ids.tolist(), "labels": labels.tolist()})


class BenchCallback(TrainerCallback):
    """Scores a fixed list of questions and adds the accuracy to the metrics of the evaluation."""

    def __init__(self, questions):
        self.questions = questions

    @torch.no_grad()
    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs):
        if not state.is_world_process_zero:
            return
        was_training = model.training
        model.eval()
        ids = torch.tensor(self.questions["input_ids"])
        answer = model(input_ids=ids).logits.argmax(-1)
        if was_training:
            model.train()
        hits = (answer == torch.tensor(self.questions["labels"])).float().mean().item()
        metrics["bench_accuracy"] = round(hits, 2)


class StopOnBench(TrainerCallback):
    def __init__(self, key="bench_accuracy", patience=2, delta=0.5):
        self.key, self.patience, self.delta = key, patience, delta
        self.best, self.stale = -1.0, 0

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        value = metrics.get(self.key)
        if value is None:
            return control
        if value > self.best + self.delta:
            self.best, self.stale = value, 0
        else:
            self.stale += 1
        if self.stale >= self.patience:
            control.should_training_stop = True
        return control


class ShardRotation(TrainerCallback):
    """Between epochs the shards of the training set are exchanged; nobody may still be reading."""

    def __init__(self):
        self.rotated = 0

    def on_epoch_end(self, args, state, control, **kwargs):
        args.distributed_state.wait_for_everyone()
        self.rotated += 1


def build_trainer(out):
    cfg = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                     max_position_embeddings=16, num_labels=2, hidden_dropout_prob=0.0,
                     attention_probs_dropout_prob=0.0)
    args = TrainingArguments(output_dir=out, per_device_train_batch_size=4, per_device_eval_batch_size=8,
                             num_train_epochs=20, eval_strategy="steps", eval_steps=8, save_strategy="no",
                             logging_steps=50, report_to=[], use_cpu=True, ddp_backend="gloo", disable_tqdm=True,
                             learning_rate=1e-4, ddp_find_unused_parameters=False)
    bench = make_split(24, 77).to_dict()
    return Trainer(model=BertForSequenceClassification(cfg), args=args, train_dataset=make_split(240, 1),
                   eval_dataset=make_split(48, 2), callbacks=[BenchCallback(bench), StopOnBench(), ShardRotation()])


def main():
    set_seed(4)
    torch.set_num_threads(1)
    out = tempfile.mkdtemp(prefix="bench_%s_" % os.environ.get("MASTER_PORT", "0"))
    trainer = build_trainer(out)
    trainer.train()
    final = trainer.evaluate()
    trainer.save_model(os.path.join(out, "final"))
    print({k: round(v, 3) for k, v in final.items() if isinstance(v, float)}, flush=True)


if __name__ == "__main__":
    main()
