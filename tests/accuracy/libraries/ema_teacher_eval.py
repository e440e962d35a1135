# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [59, 81, 91, 92]
# branch = ["self.main and epoch >= self.cfg.ema_from", "if self.main", "self.main"]
# source = "https://github.com/FareedKhan-dev/train-llm-from-scratch/pull/32"
# ///
"""Image classifier under DDP with an averaged teacher (torch.optim.swa_utils); the teacher is scored by the main process
at the end of an epoch, the others go on."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("teacher")


@dataclass
class TeacherConfig:
    classes: int = 4
    images: int = 200
    val_images: int = 24
    batch_size: int = 4
    epochs: int = 4
    ema_from: int = 1
    decay: float = 0.9


def images(count, seed, cfg):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 6, 6, generator=gen)
    return TensorDataset(x, x.mean((1, 2, 3)).mul(20).long().clamp(-1, 2) + 1)


class ConvNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(6, cfg.classes)

    def forward(self, x):
        return self.classifier(self.features(x))


def top1(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += int((model(x).argmax(-1) == y).sum())
            total += len(y)
    return hits / total


class Distillation:
    def __init__(self, cfg):
        self.cfg, self.main = cfg, dist.get_rank() == 0
        torch.manual_seed(0)
        self.student = DDP(ConvNet(cfg))
        self.teacher = AveragedModel(self.student, multi_avg_fn=get_ema_multi_avg_fn(cfg.decay), use_buffers=True)
        train = images(cfg.images, 1, cfg)
        self.sampler = DistributedSampler(train, shuffle=True, seed=0)
        self.train = DataLoader(train, batch_size=cfg.batch_size, sampler=self.sampler)
        self.val = DataLoader(images(cfg.val_images, 2, cfg), batch_size=8)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9)
        self.history = []

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.student.train()
        for x, y in self.train:
            loss = nn.functional.cross_entropy(self.student(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.teacher.update_parameters(self.student)
        return loss.item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch(epoch)
            if self.main and epoch >= self.cfg.ema_from:
                score = top1(self.teacher, self.val)
                self.history.append(score)
                log.info("epoch %d loss %.3f teacher top-1 %.3f", epoch, loss, score)
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Distillation(TeacherConfig()).fit()
    dist.destroy_process_group()
