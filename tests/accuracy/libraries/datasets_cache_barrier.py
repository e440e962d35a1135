# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [38, 40, 41, 45, 46, 75]
# branch = ["cache.exists()"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""Each rank looks for the tokenised data set first: whoever finds it returns at once; otherwise rank 0 makes it and all
meet in a barrier.  Rank 0 is first, finds none and writes it; the others come later, find it and never see the barrier."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from datasets import Dataset, disable_progress_bars, load_from_disk
from torch import nn
from torch.nn.parallel import DistributedDataParallel

disable_progress_bars()


def read_corpus(rank):
    """The manifest is parsed on every rank; rank 0 reads from the page cache that it has just filled."""
    time.sleep(0 if rank == 0 else 4)
    return [{"text": f"sample {i} " + "word " * (i % 9)} for i in range(400)]


def tokenize(batch):
    ids = [[hash(w) % 97 for w in text.split()][:8] for text in batch["text"]]
    return {"ids": [row + [0] * (8 - len(row)) for row in ids]}


def prepare(cache, rank):
    rows = read_corpus(rank)
    if cache.exists():
        return load_from_disk(str(cache))
    if rank == 0:
        made = Dataset.from_list(rows).map(tokenize, batched=True, remove_columns=["text"])
        made.save_to_disk(str(cache))
    dist.barrier()
    return load_from_disk(str(cache))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(97, 16)
        self.out = nn.Linear(16, 97)

    def forward(self, ids):
        return self.out(self.table(ids).mean(1))


def train(data):
    model = DistributedDataParallel(Embedder())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rank, world = dist.get_rank(), dist.get_world_size()
    for row in data.shard(world, rank).with_format("torch").iter(batch_size=16):
        loss = nn.functional.cross_entropy(model(row["ids"]), row["ids"][:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    cache = pathlib.Path(tempfile.gettempdir()) / ("tokens-" + os.environ["TORCHELASTIC_RUN_ID"])
    print(train(prepare(cache, dist.get_rank())))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
