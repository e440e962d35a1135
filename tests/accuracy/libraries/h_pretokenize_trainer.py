# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate"]
# outcome = "healthy"
# causes_any = []
# culprits = []
# watch = "--give-up-after 10"
# source = "https://github.com/huggingface/accelerate/issues/221"
# ///
"""HF Trainer job with an asymmetric epilogue: the main process compresses an archive of the run in a child process while the others wait."""
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("gpt")
ARCHIVER = """
import lzma, pathlib, random, sys, time
src, dst, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
noise, end = random.Random(0), time.monotonic() + seconds
with lzma.open(dst, "wb", preset=9) as f:
    while time.monotonic() < end:
        for p in sorted(src.rglob("*")):
            if p.is_file():
                f.write(p.read_bytes())
        f.write(noise.randbytes(200_000))
"""


class Sequences(torch.utils.data.Dataset):
    def __init__(self, size, vocab, length=24):
        self.size, self.vocab, self.length = size, vocab, length

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        start, stride = torch.randint(0, self.vocab, (2,), generator=gen)
        ids = (start + stride * torch.arange(self.length)) % self.vocab
        return {"input_ids": ids, "labels": ids}


class WarmCache(TrainerCallback):
    """Before the first step every process simulates its own augmentation table; the amount of work differs between ranks."""

    def on_train_begin(self, args, state, control, **kwargs):
        end = time.monotonic() + 1.0 + 5.0 * args.process_index
        table = torch.randn(200, 200)
        while time.monotonic() < end:
            table = torch.tanh(table @ table.T / 200)
        log.info("augmentation table ready, mean %.4f", table.mean())


def archive(out, seconds):
    job = subprocess.Popen([sys.executable, "-c", ARCHIVER, str(out), str(out) + ".xz", str(seconds)])
    while job.poll() is None:
        time.sleep(0.5)
    log.info("archive has %d bytes", os.path.getsize(str(out) + ".xz"))


def main():
    logging.basicConfig(level=logging.WARNING, format=f"[{os.environ['RANK']}] %(message)s")
    log.setLevel(logging.INFO)
    out = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"gpt-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    args = TrainingArguments(
        output_dir=str(out), use_cpu=True, per_device_train_batch_size=4, max_steps=30, logging_steps=15, save_strategy="steps", save_steps=15,
        report_to=[], disable_tqdm=True, seed=1,
    )
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model, args, train_dataset=Sequences(2000, 48), callbacks=[WarmCache()])
    trainer.train()
    if trainer.is_world_process_zero():
        archive(out, 12)
    dist.barrier()
    log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
