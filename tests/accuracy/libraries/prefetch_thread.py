# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD505", "HD103", "HD508"]
# culprits = [1]
# lines = [42, 56, 57, 58, 63, 68, 72, 73, 76, 98]
# source = "RadarML/red-rover#23, tilezen/tilequeue#131"
# ///
"""Image classification with a decoding thread that stays a few batches ahead of the training loop."""
import argparse
import queue
import struct
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

END = object()


class Records:
    """Length-prefixed records in memory, as they come from the archive."""

    def __init__(self, rank, count, size):
        generator = torch.Generator().manual_seed(rank)
        self.blobs = []
        for number in range(count):
            pixels = torch.randint(0, 255, (size,), generator=generator).tolist()
            body = bytes(pixels)
            self.blobs.append(struct.pack("<IB", len(body), number % 4) + body)
        if rank == 1:
            self.blobs[41] = self.blobs[41][:20]

    def __iter__(self):
        return iter(self.blobs)


def decode(blob, size):
    length, label = struct.unpack_from("<IB", blob)
    pixels = struct.unpack_from(f"<{length}B", blob, 5)
    return torch.tensor(pixels, dtype=torch.float32).view(size) / 255, label


class Prefetcher:
    def __init__(self, records, batch_size, size, depth=3):
        self.records, self.batch_size, self.size = records, batch_size, size
        self.queue = queue.Queue(depth)
        self.error = None
        self.thread = threading.Thread(target=self.work, name="decoder", daemon=True)
        self.thread.start()

    def work(self):
        try:
            self.fill()
        except Exception as error:
            self.error = error

    def fill(self):
        batch = []
        for blob in self.records:
            batch.append(decode(blob, self.size))
            if len(batch) == self.batch_size:
                images, labels = zip(*batch)
                self.queue.put((torch.stack(images), torch.tensor(labels)))
                batch = []
        self.queue.put(END)

    def __iter__(self):
        while True:
            item = self.queue.get()
            if item is END:
                break
            yield item
        if self.error:
            raise self.error


def accuracy(logits, labels):
    return (logits.argmax(1) == labels).float().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--records", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--size", type=int, default=48)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(args.size, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    records = Records(rank, args.records, args.size)
    for epoch in range(args.epochs):
        for step, (images, labels) in enumerate(Prefetcher(records, args.batch_size, args.size)):
            logits = model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            if rank == 0 and step % 5 == 0:
                print(f"epoch {epoch} step {step} accuracy {accuracy(logits, labels):.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
