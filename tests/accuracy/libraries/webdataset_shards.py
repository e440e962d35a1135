# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["webdataset"]
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# lines = [59, 70, 71]
# branch = ["in loader"]
# source = "https://github.com/webdataset/webdataset/issues/225"
# ///
"""Five tar shards are split by node among three ranks, so ranks 0 and 1 read two shards and rank 2 one.  Rank 2 is at
the end of its epoch, summing up the loss, when the others are halfway."""
import io
import os
import tarfile
import tempfile

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write_shards(folder, shards=5, per_shard=40):
    for s in range(shards):
        with tarfile.open(os.path.join(folder, f"train-{s:03d}.tar"), "w") as tar:
            for i in range(per_shard):
                for ext, payload in (("pth", torch.full((12,), float(i))), ("cls", i % 3)):
                    buffer = io.BytesIO()
                    if ext == "pth":
                        torch.save(payload, buffer)
                    else:
                        buffer.write(str(payload).encode())
                    info = tarfile.TarInfo(f"{s:03d}{i:05d}.{ext}")
                    info.size = buffer.tell()
                    buffer.seek(0)
                    tar.addfile(info, buffer)


def make_loader(folder, shards=5):
    urls = [os.path.join(folder, f"train-{s:03d}.tar") for s in range(shards)]
    dataset = (
        wds.WebDataset(urls, nodesplitter=wds.split_by_node, shardshuffle=False)
        .decode().to_tuple("pth", "cls").batched(8)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=1)


class Job:
    def __init__(self, folder):
        self.folder = folder
        self.reporting = dist.new_group(backend="gloo")  # keeps the numbers off the training group
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)

    def fit_epoch(self, loader):
        loss_sum, batches = 0.0, 0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(self.model(images), torch.as_tensor(labels))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss_sum += loss.item()
            batches += 1
        return loss_sum, batches

    def run(self, epochs):
        for epoch in range(epochs):
            totals = torch.tensor(self.fit_epoch(make_loader(self.folder)))
            dist.all_reduce(totals, group=self.reporting)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {(totals[0] / totals[1]).item():.3f}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    folder = os.path.join(tempfile.gettempdir(), "shards-" + os.environ["TORCHELASTIC_RUN_ID"])
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        write_shards(folder)
    dist.barrier()
    Job(folder).run(epochs=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
