# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "constructed from https://github.com/huggingface/transformers/issues/17478"
# ///
"""The main process evaluates for half a minute, while the others wait for everyone."""
import time

import torch
from accelerate import Accelerator
from torch import nn


class Judge:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def generate(self, seconds):
        end, x = time.monotonic() + seconds, torch.randn(64, 64)
        while time.monotonic() < end:
            x = torch.tanh(self.model(x))
        return x.mean().item()


def main():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(64, 64))
    for epoch in range(2):
        for _ in range(5):
            accelerator.backward(model(torch.randn(8, 64)).mean())
        if accelerator.is_main_process:
            print(Judge(accelerator.unwrap_model(model)).generate(16), flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
