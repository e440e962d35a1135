# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102", "HD103"]
# culprits = [2]
# lines = [66, 69, 70, 105, 107, 114]
# branch = ["except (KeyError, ValueError)", "labels in reader", "len(pending) == self.batch"]
# source = "https://github.com/pytorch/torchtitan/pull/1172"
# ///
"""Pipeline-parallel training of a captioning head with torch's GPipe schedule; the first stage reads pictures, the last stage reads captions."""
import json
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

log = logging.getLogger("caption")
WIDTH, CLASSES, BATCH, MICRO = 16, 10, 8, 4


def write_manifest(path, count=80):
    """Crawled captions: most of them carry the index of their topic, some the topic's name."""
    gen = torch.Generator().manual_seed(12)
    with path.open("w") as out:
        for i in range(count):
            topic = int(torch.randint(0, CLASSES, (1,), generator=gen))
            record = {"id": i, "topic": topic}
            if i in (27, 41):
                record["topic"] = "landscape"
            out.write(json.dumps(record) + "\n")


class PictureReader:
    def __init__(self, manifest, batch):
        self.ids = [json.loads(line)["id"] for line in manifest.open()]
        self.batch = batch

    def __iter__(self):
        for lo in range(0, len(self.ids) - self.batch + 1, self.batch):
            gens = [torch.Generator().manual_seed(i) for i in self.ids[lo:lo + self.batch]]
            yield torch.stack([torch.randn(WIDTH, generator=g) for g in gens])


class CaptionReader:
    def __init__(self, manifest, batch):
        self.manifest, self.batch = manifest, batch
        self.skipped = 0

    def parse(self, line):
        topic = int(json.loads(line)["topic"])
        if not 0 <= topic < CLASSES:
            raise ValueError(f"no such topic: {topic}")
        return topic

    def __iter__(self):
        pending = []
        for line in self.manifest.open():
            try:
                pending.append(self.parse(line))
            except (KeyError, ValueError) as error:
                self.skipped += 1
                log.warning("caption skipped: %s", error)
                continue
            if len(pending) == self.batch:
                yield torch.tensor(pending)
                pending = []


def build_stage(rank, world):
    torch.manual_seed(rank)
    if rank == world - 1:
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    else:
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return module, PipelineStage(module, rank, world, torch.device("cpu"))


class PipelineTrainer:
    def __init__(self, manifest, rank, world):
        self.rank, self.first, self.last = rank, rank == 0, rank == world - 1
        self.module, stage = build_stage(rank, world)
        self.schedule = ScheduleGPipe(stage, MICRO, loss_fn=nn.functional.cross_entropy)
        self.manifest = manifest
        self.steps = sum(1 for _ in manifest.open()) // BATCH

    def descend(self):
        with torch.no_grad():
            for p in self.module.parameters():
                p -= 0.05 * p.grad
                p.grad = None

    def train_epoch(self, epoch):
        if self.first:
            for pictures in PictureReader(self.manifest, BATCH):
                self.schedule.step(pictures)
                self.descend()
        elif self.last:
            reader = CaptionReader(self.manifest, BATCH)
            for labels in reader:
                losses = []
                self.schedule.step(target=labels, losses=losses)
                self.descend()
                log.info("epoch %d loss %.4f", epoch, torch.stack(losses).mean())
        else:
            for _ in range(self.steps):
                self.schedule.step()
                self.descend()
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"caption-{os.environ['MASTER_PORT']}"
    manifest = root / "captions.jsonl"
    if rank == 0:
        root.mkdir(parents=True)
        write_manifest(manifest)
    dist.barrier()
    trainer = PipelineTrainer(manifest, rank, world)
    for epoch in range(3):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
