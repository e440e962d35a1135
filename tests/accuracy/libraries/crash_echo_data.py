# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "crashed"
# causes_any = ["HD401", "HD103"]
# culprits = [4]
# lines = [56, 57, 67, 114, 119, 128, 129, 130, 131, 133]
# branch = ["except ValueError", "try:", "len(blob) < HEADER.size + size"]
# source = "https://github.com/Megvii-BaseDetection/YOLOX/issues/702"
# ///
"""Detection training over binary records; one record of rank 4 is cut short.

Its reader raises, main logs that and ends the process with status 0; the five others die with "Connection closed by peer", and
torchrun names one of them as the first failure.
"""
import logging
import struct
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("detect")
HEADER = struct.Struct("<I")


@dataclass
class DetectConfig:
    steps: int = 30
    record_floats: int = 16
    batch: int = 4
    drain_seconds: float = 1.0


class TruncatedRecord(ValueError):
    pass


class RecordFile:
    """Length-prefixed float32 records, as written by the exporter."""

    def __init__(self, rank, cfg):
        self.cfg = cfg
        g = torch.Generator().manual_seed(rank)
        self.blobs = []
        for i in range(cfg.steps * cfg.batch):
            body = torch.randn(cfg.record_floats, generator=g).numpy().tobytes()
            self.blobs.append(HEADER.pack(len(body)) + body)
        if rank == 4:
            self.blobs[37] = self.blobs[37][:29]

    def decode(self, index):
        blob = self.blobs[index]
        (size,) = HEADER.unpack_from(blob)
        if len(blob) < HEADER.size + size:
            raise TruncatedRecord(f"record {index}: {len(blob) - HEADER.size} of {size} bytes")
        return torch.frombuffer(bytearray(blob[HEADER.size:]), dtype=torch.float32)


class BatchReader:
    def __init__(self, records, batch):
        self.records, self.batch = records, batch

    def __iter__(self):
        for start in range(0, len(self.records.blobs), self.batch):
            yield torch.stack([self.records.decode(i) for i in range(start, start + self.batch)])


class LogShipper:
    def __init__(self, cfg):
        self.cfg, self.lines = cfg, []

    def add(self, text):
        self.lines.append(text)

    def drain(self):
        deadline = time.monotonic() + self.cfg.drain_seconds
        while self.lines and time.monotonic() < deadline:
            self.lines.pop(0)
            time.sleep(0.2)


class Detector(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = torch.nn.Linear(cfg.record_floats, 12)
        self.boxes = torch.nn.Linear(12, 4)

    def forward(self, x):
        return self.boxes(torch.relu(self.backbone(x)))


class DetectTrainer:
    def __init__(self, cfg):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = Detector(cfg)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.reader = BatchReader(RecordFile(self.rank, cfg), cfg.batch)
        self.shipper = LogShipper(cfg)

    def step(self, batch):
        loss = self.model(batch).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.opt.step()
        return loss.item()

    def run(self):
        for n, batch in enumerate(self.reader):
            self.shipper.add(f"step {n} loss {self.step(batch):.4f}")
            time.sleep(0.1)

    def close(self):
        dist.destroy_process_group()
        self.shipper.drain()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = DetectTrainer(DetectConfig())
    try:
        trainer.run()
    except ValueError as e:
        log.error("[rank %d] stopping: %s", trainer.rank, e)
    finally:
        trainer.close()


if __name__ == "__main__":
    main()
