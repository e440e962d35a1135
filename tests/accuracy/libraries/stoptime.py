# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109", "HD110"]
# culprits_any = [[0], [1, 2]]
# lines = [66, 93, 95, 108]
# branch = ["self.elapsed() > self.cfg.stop_time_s", "self.cfg.stop_time_s and self.elapsed() > self.cfg.stop_time_s", "trainer.out_of_time()"]
# source = "https://github.com/facebookresearch/fairseq/pull/2333"
# ///
"""Translation style training loop with a limit on the hours of training, counted over restarts."""
import logging
import os
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


@dataclass
class TrainConfig:
    stop_time_s: float = 4.0
    max_update: int = 4000
    update_freq: int = 2
    validate_interval: int = 50
    vocab: int = 64


class Meter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, v):
        self.total += v
        self.n += 1


class Trainer:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.task = self._load_task()
        self.start = time.monotonic()
        self.model = DDP(nn.Sequential(nn.Embedding(cfg.vocab, 16), nn.Linear(16, cfg.vocab)))
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.num_updates = 0
        self.meter = Meter()

    def _load_task(self):
        """Binarised corpora are memory mapped; the dictionary of the rank's shard is built while reading."""
        g = torch.Generator().manual_seed(self.rank)
        corpus = torch.randint(0, self.cfg.vocab, (128 + 4 * self.rank, 24), generator=g)
        for _ in range(0, len(corpus) - 127, 4):
            time.sleep(0.6)
        return corpus

    def elapsed(self):
        return time.monotonic() - self.start

    def out_of_time(self):
        return bool(self.cfg.stop_time_s and self.elapsed() > self.cfg.stop_time_s)

    def train_step(self, samples):
        self.opt.zero_grad()
        for i, ids in enumerate(samples):
            loss = nn.functional.cross_entropy(self.model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
            (loss / len(samples)).backward()
        self.opt.step()
        self.num_updates += 1
        self.meter.update(loss.item())
        time.sleep(0.01)

    def valid_loss(self):
        total = torch.tensor([self.meter.total, float(self.meter.n)])
        dist.all_reduce(total)
        return (total[0] / total[1].clamp(min=1)).item()


def batches(corpus, cfg):
    while True:
        for i in range(0, len(corpus) - 15, 16):
            yield [corpus[i:i + 8], corpus[i + 8:i + 16]][: cfg.update_freq]


def should_stop(trainer):
    if trainer.num_updates >= trainer.cfg.max_update:
        return True
    if trainer.out_of_time():
        log.info("stopping training due to cumulative training time after %.2f s", trainer.elapsed())
        return True
    return False


def train(trainer):
    for samples in batches(trainer.task, trainer.cfg):
        trainer.train_step(samples)
        if trainer.num_updates % trainer.cfg.validate_interval == 0:
            loss = trainer.valid_loss()
            if trainer.rank == 0:
                log.info("update %d loss %.4f", trainer.num_updates, loss)
        if should_stop(trainer):
            break
    dist.barrier()
    return trainer.valid_loss()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=3))
    trainer = Trainer(TrainConfig(stop_time_s=float(os.environ.get("STOP_TIME_S", "4"))), dist.get_rank())
    final = train(trainer)
    log.info("final loss %.4f at %d", final, trainer.num_updates)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
