# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD508", "HD101"]
# culprits_any = [[1, 2], [0]]
# lines = [35, 36, 48, 49, 54]
# branch = ["os.path.exists", "exists(self.signal", "self.rank != 0", "suffix"]
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Rank 0 prepares the dataset and leaves a signal file for which the others poll before all meet in a barrier.
The others look for the file under another name, since its suffix holds their own rank."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from datasets import Dataset
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Signal:
    def __init__(self, folder, rank):
        run = os.environ["MASTER_PORT"]
        suffix = f"local_rank{rank}"
        self.signal = os.path.join(folder, f".node_0_{run}_{suffix}_data_prep_completed")

    def leave(self):
        with open(self.signal, "w") as f:
            f.write("done")

    def wait(self):
        while not os.path.exists(self.signal):
            time.sleep(0.2)


class Preparation:
    def __init__(self, rank):
        self.rank, self.signal = rank, Signal(tempfile.gettempdir(), rank)

    @staticmethod
    def tokenize(row):
        return {"ids": [ord(c) % 32 for c in row["text"]][:8]}

    def dataset(self):
        if self.rank != 0:
            self.signal.wait()
        rows = Dataset.from_dict({"text": [f"sentence number {i}" for i in range(64)]})
        rows = rows.map(self.tokenize, load_from_cache_file=False)
        if self.rank == 0:
            self.signal.leave()
        dist.barrier()
        return rows


def train(rows):
    model = DDP(nn.Linear(8, 1))
    for row in rows:
        model(torch.tensor(row["ids"], dtype=torch.float)).sum().backward()


def main():
    dist.init_process_group("gloo")
    train(Preparation(dist.get_rank()).dataset())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
