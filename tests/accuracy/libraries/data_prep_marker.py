# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD508", "HD101"]
# culprits_any = [[0], [1, 2]]
# lines = [27, 28, 29, 45, 46, 47, 50, 52, 53]
# branch = ["os.path.exists(marker)", "local_rank"]
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Local rank 0 prepares a data set and writes a marker file, for which the other ranks poll; it then removes the marker
at once.  The others look every now and then, miss it, and poll for ever while rank 0 waits for them in a barrier."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from datasets import Dataset, disable_progress_bars
from torch import nn
from torch.nn.parallel import DistributedDataParallel

disable_progress_bars()


def wait_for(marker):
    while not os.path.exists(marker):
        time.sleep(0.2)


class DataPrep:
    def __init__(self, folder, local_rank):
        self.folder, self.local_rank = folder, local_rank

    def marker(self):
        return os.path.join(self.folder, ".node_0_local_rank0_completed")

    def build(self):
        rows = Dataset.from_dict({"x": [[float(i % k) for k in range(1, 9)] for i in range(256)]})
        rows = rows.map(lambda r: {"y": sum(r["x"]) / 8})
        rows.save_to_disk(os.path.join(self.folder, "rows"))

    def run(self):
        if self.local_rank != 0:
            marker = self.marker()
            wait_for(marker)
        else:
            self.build()
            with open(self.marker(), "w") as f:
                f.write("done")
            os.remove(self.marker())
        dist.barrier()
        return Dataset.load_from_disk(os.path.join(self.folder, "rows")).with_format("torch")


def train(rows, rank, world):
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for batch in rows.shard(world, rank).iter(batch_size=8):
        loss = (model(batch["x"]).squeeze(1) - batch["y"]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    folder = os.path.join(tempfile.gettempdir(), "prep-" + os.environ["TORCHELASTIC_RUN_ID"])
    os.makedirs(folder, exist_ok=True)
    rows = DataPrep(folder, int(os.environ["LOCAL_RANK"])).run()
    train(rows, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
