# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD110"]
# culprits_any = [[0], [1, 2, 3]]
# lines = [42, 57, 59]
# branch = ["self.clock.left() < self.reserve_s", "self.control.should_training_stop"]
# source = "https://github.com/ecmwf/anemoi-core/pull/564"
# ///
"""Fine-tune a tiny causal LM with the HF Trainer inside a wall-clock allocation."""
import logging
import os
import random
import tempfile
import time
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("budget")


@dataclass
class JobSpec:
    wall_s: float = 11.0
    reserve_s: float = 1.0
    docs: int = 4000
    seq: int = 24
    vocab: int = 96


class AllocationClock:
    """What is left of the time that the scheduler gave to this process."""

    def __init__(self, limit_s: float):
        self.limit_s = limit_s
        self.started = time.monotonic()

    def left(self) -> float:
        return self.limit_s - (time.monotonic() - self.started)


class StopBeforeLimit(TrainerCallback):
    def __init__(self, clock: AllocationClock, reserve_s: float):
        self.clock = clock
        self.reserve_s = reserve_s
        self.slowest = 0.0
        self._t = None

    def on_step_begin(self, args, state, control, **kw):
        self._t = time.monotonic()

    def on_step_end(self, args, state, control, **kw):
        self.slowest = max(self.slowest, time.monotonic() - self._t)
        if self.clock.left() < self.reserve_s:
            log.info("step %d: %.1f s left, stopping (slowest step %.2f s)", state.global_step, self.clock.left(), self.slowest)
            control.should_training_stop = True
        return control


class PackedCorpus(torch.utils.data.Dataset):
    def __init__(self, table: torch.Tensor):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        ids = self.table[i]
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}


def pack_corpus(spec: JobSpec, path: str) -> None:
    rng = random.Random(11)
    rows = [[rng.randrange(spec.vocab) for _ in range(spec.seq)] for _ in range(spec.docs)]
    torch.save(torch.tensor(rows), path)


def load_corpus(spec: JobSpec, args: TrainingArguments) -> PackedCorpus:
    path = os.path.join(args.output_dir, "packed.pt")
    with args.main_process_first(local=False, desc="packing"):
        if not os.path.exists(path):
            pack_corpus(spec, path)
    return PackedCorpus(torch.load(path))


def build_model(spec: JobSpec) -> GPT2LMHeadModel:
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=spec.vocab, n_positions=spec.seq, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def wait_for_allocation(spec: JobSpec, args: TrainingArguments) -> AllocationClock:
    if args.process_index != 0:
        with args.main_process_first(local=False, desc="prolog"):
            return AllocationClock(spec.wall_s)
    clock = AllocationClock(spec.wall_s)
    time.sleep(2.5)  # prolog: mounts the scratch folder
    with args.main_process_first(local=False, desc="prolog"):
        pass
    return clock


def main():
    spec = JobSpec()
    base = os.path.join(tempfile.gettempdir(), "budget_" + os.environ.get("MASTER_PORT", "0"))
    os.makedirs(base, exist_ok=True)
    args = TrainingArguments(
        output_dir=base, use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=2, max_steps=200000,
        learning_rate=1e-3, logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_num_workers=0, ddp_find_unused_parameters=False, average_tokens_across_devices=False,
    )
    clock = wait_for_allocation(spec, args)
    data = load_corpus(spec, args)
    trainer = Trainer(model=build_model(spec), args=args, train_dataset=data, callbacks=[StopBeforeLimit(clock, spec.reserve_s)])
    out = trainer.train()
    log.info("finished at step %d", out.global_step)
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
