# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD508"]
# culprits = [3]
# lines = [43, 48, 107]
# source = "https://github.com/release-engineering/kobo/issues/260"
# ///
"""Mixture-of-domains training: one domain a rank, gradients averaged, every rank writes its metrics through a bounded queue to its own tracking thread."""
import json
import logging
import os
import queue
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("domains")
DOMAINS = ("code", "books", "forum", "speech")


class Tracker:
    """Writes one JSON line an event; the file is append-only and must stay standard JSON."""

    def __init__(self, path, depth=64):
        self.path = path
        self.events = queue.Queue(maxsize=depth)
        self.writer = threading.Thread(target=self._drain, name="tracker", daemon=True)
        self.writer.start()

    def _drain(self):
        with open(self.path, "a") as sink:
            while True:
                event = self.events.get()
                if event is None:
                    return
                sink.write(json.dumps(event, allow_nan=False, sort_keys=True) + "\n")
                sink.flush()

    def log(self, **event):
        event["at"] = round(time.time(), 3)
        self.events.put(event)

    def close(self):
        self.events.put(None)
        self.writer.join()


class DomainStream:
    """Synthetic documents; a document is a bag of tokens with a mask of those that count."""

    def __init__(self, name, seed):
        self.name = name
        self.gen = torch.Generator().manual_seed(seed)
        self.silence = 0.12 if name == "speech" else 0.0

    def batch(self, size=6, length=20):
        tokens = torch.randint(50, (size, length), generator=self.gen)
        mask = torch.rand(size, length, generator=self.gen) > 0.3
        quiet = torch.rand(size, generator=self.gen) < self.silence
        mask[quiet] = False
        return tokens, mask


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb = torch.nn.Embedding(50, 16)
        self.head = torch.nn.Linear(16, 50)

    def forward(self, tokens):
        return self.head(self.emb(tokens))


def masked_loss(model, tokens, mask):
    logits = model(tokens[:, :-1])
    per_token = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    keep = mask[:, 1:].float()
    per_document = (per_token * keep).sum(1) / keep.sum(1)
    usable = keep.sum(1) > 0
    return per_document, per_document[usable].mean()


@torch.no_grad()
def average_and_apply(model, lr=0.1):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p -= lr * p.grad / dist.get_world_size()


def train(rank, folder, steps=1500):
    stream = DomainStream(DOMAINS[rank % 4], seed=60 + rank)
    tracker = Tracker(folder / f"{stream.name}.jsonl")
    model = Model()
    for step in range(steps):
        per_document, loss = masked_loss(model, *stream.batch())
        model.zero_grad()
        loss.backward()
        average_and_apply(model)
        tracker.log(step=step, domain=stream.name, loss=loss.item(), worst=per_document.max().item())
        if step % 100 == 0:
            log.info("step %d loss %.3f", step, loss.item())
    tracker.close()


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "tracking"
    folder.mkdir(exist_ok=True)
    train(rank, folder)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
