# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits_any = [[1], [0]]
# lines = [54, 56, 63, 74, 75]
# branch = ["in self.loader", "for (labels,)", "self.loader"]
# source = "https://github.com/webdataset/webdataset/issues/188"
# ///
"""Three shards are split over two ranks, so that rank 0 reads two of them and rank 1 one.
Rank 1's epoch ends first: it writes its summary with a gather of objects, while rank 0 synchronises gradients."""
import io
import os
import tarfile
import tempfile

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ShardWriter:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def write(self, shards, samples):
        paths = []
        for shard in range(shards):
            paths.append(os.path.join(self.folder, f"part-{shard}.tar"))
            with tarfile.open(paths[-1], "w") as tar:
                for i in range(samples):
                    data = str(shard * samples + i).encode()
                    info = tarfile.TarInfo(f"{shard}{i:03d}.cls")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        return paths


def pipeline(paths):
    return wds.DataPipeline(wds.SimpleShardList(paths), wds.split_by_node, wds.split_by_worker, wds.tarfile_to_samples(),
                            wds.decode(), wds.to_tuple("cls"), wds.batched(4))


class Epochs:
    def __init__(self, model, loader, group):
        self.model, self.loader, self.group, self.seen = model, loader, group, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def train(self):
        for (labels,) in self.loader:
            x = torch.as_tensor(labels, dtype=torch.float).reshape(-1, 1)
            self.model(x).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.seen += len(x)

    def summary(self):
        out = [None] * dist.get_world_size()
        dist.all_gather_object(out, self.seen, group=self.group)
        return sum(out)


def main():
    dist.init_process_group("gloo")
    folder = os.path.join(tempfile.gettempdir(), f"shards-{dist.get_rank()}")
    paths = ShardWriter(folder).write(3, 24)
    group = dist.new_group()
    epochs = Epochs(DDP(nn.Linear(1, 3)), wds.WebLoader(pipeline(paths), batch_size=None, num_workers=0), group)
    for epoch in range(4):
        epochs.train()
        print(epoch, epochs.summary(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
