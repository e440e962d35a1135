# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# cause = "HD101"
# culprits_any = [[2], [0, 1], [0], [1, 2]]
# lines = [32, 36, 64]
# branch = ["exists()", "self.path"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""An index of the data is made by the main process while the others wait, unless there is one already.
Rank 2 is late: when it looks, the index is there, and it skips the barrier in which the others wait for it. So does
rank 1 where it looks a moment after rank 0 has made the index: then rank 0 alone is in that barrier."""
import json
import os
import pathlib
import tempfile
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ParquetIndex:
    def __init__(self, folder, accelerator):
        self.path = pathlib.Path(folder) / f"index-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['MASTER_PORT']}.json"
        self.accelerator = accelerator

    def load(self):
        if self.path.exists():
            return json.loads(self.path.read_text())
        if self.accelerator.is_main_process:
            self.build()
        self.accelerator.wait_for_everyone()
        return self.load()

    def build(self):
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"rows": 96, "width": 8}))
        temporary.rename(self.path)


class Latents(Dataset):
    def __init__(self, index):
        self.rows, self.width = index["rows"], index["width"]

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        return torch.full((self.width,), i / self.rows)


def warm_up(rank):
    """Node 2 still unpacks its container."""
    time.sleep(3 if rank == 2 else 0)


def train(accelerator, index):
    model, optimizer, loader = nn.Linear(8, 4), None, DataLoader(Latents(index), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        loss = model(batch).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def main():
    accelerator = Accelerator(cpu=True)
    accelerator.wait_for_everyone()
    warm_up(accelerator.process_index)
    index = ParquetIndex(tempfile.gettempdir(), accelerator).load()
    train(accelerator, index)
    print("done", accelerator.process_index)


if __name__ == "__main__":
    main()
