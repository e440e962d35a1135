# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits_any = [[2], [0, 1]]
# lines = [31, 78, 79, 82]
# branch = ["masks.shape[0] == 0", "image, masks in self.loader"]
# source = "https://github.com/roboflow/rf-detr/pull/1085"
# ///
"""Instance segmentation validation: masks of every image are kept as metric state and compared at the end."""
import logging
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import Metric

log = logging.getLogger("seg-eval")


class MaskOverlap(Metric):
    """Mean IoU over images; states are ragged and cannot be concatenated."""

    full_state_update = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_state("ious", default=[], dist_reduce_fx=None)

    def update(self, pred, target):
        p, t = pred.flatten(1).float(), target.flatten(1).float()
        inter = (p * t).sum(-1)
        self.ious.append(inter / (p.sum(-1) + t.sum(-1) - inter).clamp(min=1))

    def compute(self):
        return torch.stack([per_image.mean() for per_image in self.ious]).mean()


class Images:
    """Images with a varying number of instances; some are background only."""

    def __init__(self, rank, world, n=18, size=12):
        g = torch.Generator().manual_seed(21)
        items = []
        for i in range(n):
            count = int(torch.randint(1, 4, (1,), generator=g))
            if i in (5, 11):
                count = 0
            masks = (torch.rand(count, size, size, generator=g) > 0.6).float()
            items.append((torch.rand(1, size, size, generator=g), masks))
        self.items = items[rank::world]

    def __iter__(self):
        return iter(self.items)


class TinyHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


class Evaluator:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.metric = MaskOverlap()

    @torch.no_grad()
    def run(self):
        self.metric.reset()
        for image, masks in self.loader:
            if masks.shape[0] == 0:
                continue
            logits = self.model(image.unsqueeze(0))[0, : masks.shape[0]]
            self.metric.update(logits > 0, masks > 0)
        return self.metric.compute()


def train_epoch(model, opt, loader):
    for image, masks in loader:
        out = model(image.unsqueeze(0))[0]
        target = torch.zeros_like(out)
        target[: len(masks)] = masks
        loss = nn.functional.binary_cross_entropy_with_logits(out, target)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(TinyHead())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    data = Images(rank, world)
    evaluator = Evaluator(model.module, data)
    for epoch in range(3):
        train_epoch(model, opt, data)
        score = evaluator.run()
        log.info("epoch %d mIoU %.4f", epoch, score.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
