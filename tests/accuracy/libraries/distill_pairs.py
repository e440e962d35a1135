# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [1]
# lines = [68, 70, 71, 113]
# branch = ["self.confidence(logits) < self.cfg.min_confidence"]
# source = "own"
# ///
"""Online distillation: ranks 0 and 1 are teachers that send soft labels to the students 2 and 3, which train under DDP. Teacher 1 leaves
out a batch on which it is not sure; its student waits for one more message at the end of the epoch."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("distill")


@dataclass
class DistillConfig:
    features: int = 10
    classes: int = 5
    batch: int = 6
    batches_per_epoch: int = 15
    epochs: int = 50
    temperature: float = 2.0
    min_confidence: float = 0.3
    lr: float = 0.02


class Questions:
    """The same unlabelled batches for a teacher and its student; a few scanned pages are blank."""

    BLANK = {(1, 1, 6)}

    def __init__(self, cfg, pair):
        self.cfg, self.pair = cfg, pair

    def epoch(self, number):
        gen = torch.Generator().manual_seed(1000 * self.pair + number)
        for index in range(self.cfg.batches_per_epoch):
            x = 3 * torch.randn(self.cfg.batch, self.cfg.features, generator=gen)
            yield torch.zeros_like(x) if (self.pair, number, index) in self.BLANK else x


class Teacher:
    def __init__(self, cfg, pair, student_rank):
        self.cfg, self.student_rank = cfg, student_rank
        torch.manual_seed(pair)
        self.net = nn.Sequential(nn.Linear(cfg.features, 32), nn.Tanh(), nn.Linear(32, cfg.classes, bias=False))
        with torch.no_grad():
            for p in self.net.parameters():
                p.mul_(3.0 if p.ndim == 2 else 0.0)
        self.dropped = 0

    def confidence(self, logits):
        return logits.softmax(-1).max(-1).values.mean()

    @torch.no_grad()
    def serve(self, batches):
        for x in batches:
            logits = self.net(x)
            if self.confidence(logits) < self.cfg.min_confidence:
                self.dropped += 1
                continue
            dist.send(logits / self.cfg.temperature, dst=self.student_rank)


class Student:
    def __init__(self, cfg, group, teacher_rank):
        self.cfg, self.teacher_rank = cfg, teacher_rank
        torch.manual_seed(99)
        self.net = DDP(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, cfg.classes)), process_group=group)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=cfg.lr)

    def soft_labels(self, rows):
        target = torch.empty(rows, self.cfg.classes)
        dist.recv(target, src=self.teacher_rank)
        return target.softmax(-1)

    def learn(self, batches):
        total = 0.0
        for x in batches:
            target = self.soft_labels(len(x))
            loss = F.cross_entropy(self.net(x) / self.cfg.temperature, target)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / self.cfg.batches_per_epoch


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    teachers = dist.get_world_size() // 2
    cfg, pair = DistillConfig(), rank % teachers
    students = dist.new_group(list(range(teachers, 2 * teachers)))
    questions = Questions(cfg, pair)
    role = Teacher(cfg, pair, rank + teachers) if rank < teachers else Student(cfg, students, rank - teachers)
    for epoch in range(cfg.epochs):
        if isinstance(role, Teacher):
            role.serve(questions.epoch(epoch))
        else:
            log.info("student %d epoch %d loss %.4f", rank, epoch, role.learn(questions.epoch(epoch)))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
