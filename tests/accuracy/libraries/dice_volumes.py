# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109"]
# culprits = [1]
# lines = [65, 67, 68, 88]
# branch = ["torch.isfinite(loss)"]
# source = "https://github.com/Project-MONAI/monai-physio/pull/137"
# ///
"""MONAI segmentation of small volumes under DDP: Dice loss, per-volume normalisation, a summary after every epoch."""
import logging

import torch
import torch.distributed as dist
from monai.losses import DiceLoss
from monai.networks.nets import BasicUNet
from monai.transforms import Compose, EnsureType, Lambda
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("volumes")


def z_score(volume):
    return (volume - volume.mean()) / volume.std()


class Scans(Dataset):
    """Bright blobs in noise. One scanner wrote an all-black slab when its door had been opened."""

    def __init__(self, site, size=12, edge=32):
        self.site, self.size, self.edge = site, size, edge
        self.transform = Compose([EnsureType(), Lambda(z_score)])

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(1000 * self.site + i)
        image = torch.rand(1, self.edge, self.edge, generator=g)
        mask = torch.zeros_like(image)
        a, b = torch.randint(0, self.edge - 6, (2,), generator=g).tolist()
        mask[:, a:a + 6, b:b + 6] = 1
        image = image + mask
        if self.site == 1 and i == self.size - 1:
            image = torch.zeros_like(image)
        return torch.as_tensor(self.transform(image)), mask


class Summary:
    def __init__(self):
        self.losses, self.skipped = [], 0

    def __str__(self):
        mean = sum(self.losses) / max(len(self.losses), 1)
        return f"mean loss {mean:.4f} of {len(self.losses)} batches, {self.skipped} skipped"


def train_epoch(model, loader, loss_fn, lr):
    summary = Summary()
    for image, mask in loader:
        loss = loss_fn(model(image), mask)
        model.zero_grad()
        if not torch.isfinite(loss):
            summary.skipped += 1
            continue
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= lr * p.grad
        summary.losses.append(loss.item())
    return summary


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"site {rank}: %(message)s")
    torch.manual_seed(0)
    net = BasicUNet(spatial_dims=2, in_channels=1, out_channels=1, features=(4, 4, 8, 8, 8, 4))
    model = DDP(net, broadcast_buffers=False)
    loader = DataLoader(Scans(rank), batch_size=2)
    loss_fn = DiceLoss(sigmoid=True)
    for epoch in range(8):
        summary = train_epoch(model, loader, loss_fn, lr=0.1)
        dist.barrier()
        log.info("epoch %d: %s", epoch, summary)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
