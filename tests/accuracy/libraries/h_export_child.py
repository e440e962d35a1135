# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate"]
# outcome = "healthy"
# source = "https://github.com/huggingface/trl/issues/7223"
# ///
"""HF Trainer whose save callback converts the checkpoint in a child process; all ranks poll for its marker."""
import logging
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("export")

CONVERT = """
import sys, time
end = time.time() + float(sys.argv[2])
n = 0
while time.time() < end:
    n += sum(i * i for i in range(20000))
    time.sleep(0.05)
open(sys.argv[1], 'w').write(str(n))
"""


class ConvertOnSave(TrainerCallback):
    def __init__(self, seconds: float):
        self.seconds = seconds
        self.waited = 0.0

    def on_save(self, args, state, control, **kw):
        marker = os.path.join(args.output_dir, f"converted_{state.global_step}")
        if state.is_world_process_zero:
            proc = subprocess.Popen([sys.executable, "-c", CONVERT, marker, str(self.seconds)])
            proc.wait()
        start = time.monotonic()
        while not os.path.exists(marker):
            time.sleep(0.2)
        self.waited += time.monotonic() - start
        log.info("step %d converted, rank waited %.1f s", state.global_step, self.waited)


class Rows(torch.utils.data.Dataset):
    def __init__(self, n=240, seq=12):
        self.rows = torch.randint(0, 40, (n, seq), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i].clone()}


def main():
    logging.basicConfig(level=logging.INFO)
    out = os.path.join(tempfile.gettempdir(), "export_" + os.environ.get("MASTER_PORT", "0"))
    args = TrainingArguments(
        output_dir=out, use_cpu=True, ddp_backend="gloo", max_steps=20, per_device_train_batch_size=2, save_steps=10,
        logging_strategy="no", report_to=[], disable_tqdm=True, ddp_find_unused_parameters=False,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    Trainer(model=model, args=args, train_dataset=Rows(), callbacks=[ConvertOnSave(6.0)]).train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
