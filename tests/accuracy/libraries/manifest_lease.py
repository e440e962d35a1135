# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD305", "HD103", "HD101", "HD508"]
# culprits = [2]
# lines = [33, 80, 88, 89, 91, 101, 104]
# branch = ["except (ValueError, KeyError)", "self.leases.acquire(key)", "self.store.add(f\"lease/{key}\", 1) == 1"]
# source = "https://github.com/pytorch/pytorch/issues/67972"
# ///
"""Shards a growing corpus: whoever is first with its listing takes the epoch's lease and publishes the manifest."""
import json
import logging
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("manifest")


class LeaseTable:
    """First come, first served, by an atomic counter in the job's store."""

    def __init__(self, store):
        self.store = store

    def acquire(self, key):
        return self.store.add(f"lease/{key}", 1) == 1


class PartListing:
    """Lists the parts that collectors drop into a folder; each part has a small JSON sidecar."""

    def __init__(self, root):
        self.root = Path(root)

    def write(self, epoch, samples):
        d = self.root / f"epoch{epoch}"
        d.mkdir(parents=True)
        for i, n in enumerate(samples):
            body = {"samples": n, "tokens": n * 128}
            if (epoch, i) == (2, 5):
                body = {"samples": f"{n:,}", "tokens": n * 128}
            (d / f"part{i:02d}.json").write_text(json.dumps(body))

    def read(self, epoch):
        for path in sorted((self.root / f"epoch{epoch}").glob("part*.json")):
            body = json.loads(path.read_text())
            yield path.name, int(body["samples"]), int(body["tokens"])


class ManifestService:
    def __init__(self, store, listing, rank, world):
        self.store = store
        self.leases = LeaseTable(store)
        self.listing = listing
        self.rank, self.world = rank, world

    def _stat_disks(self, epoch):
        time.sleep(0.6 * ((self.rank - epoch) % self.world))

    def _compose(self, epoch):
        bins = [[] for _ in range(self.world)]
        load = [0] * self.world
        for name, samples, tokens in self.listing.read(epoch):
            i = load.index(min(load))
            bins[i].append((name, samples))
            load[i] += tokens
        return bins

    def _publish(self, key, epoch):
        try:
            manifest = self._compose(epoch)
            self.store.set(f"manifest/{key}", json.dumps(manifest))
        except (ValueError, KeyError) as err:
            log.warning("manifest of epoch %d skipped: %s", epoch, err)
            return None
        return manifest

    def assignment(self, epoch):
        key = f"epoch{epoch}"
        self._stat_disks(epoch)
        if self.leases.acquire(key):
            manifest = self._publish(key, epoch)
        else:
            manifest = json.loads(self.store.get(f"manifest/{key}"))
        return manifest[self.rank] if manifest else []


class Consumer:
    def __init__(self, service):
        self.service = service
        self.weight = torch.zeros(16)

    def epoch(self, epoch):
        parts = self.service.assignment(epoch)
        samples = sum(n for _, n in parts)
        total = torch.tensor([float(samples)])
        dist.all_reduce(total)
        self.weight += samples / max(total.item(), 1.0)
        return int(total)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank, world = dist.get_rank(), dist.get_world_size()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    base = dist.distributed_c10d._get_default_store()
    store = dist.PrefixStore("corpus", base)
    store.set_timeout(timedelta(hours=2))
    listing = PartListing(Path(tempfile.gettempdir()) / f"parts_{host}_{port}")
    if rank == 0:
        for epoch in range(4):
            listing.write(epoch, [900 + 150 * i for i in range(9)])
    dist.barrier()
    consumer = Consumer(ManifestService(store, listing, rank, world))
    for epoch in range(4):
        total = consumer.epoch(epoch)
        if rank == 0:
            log.info("epoch %d: %d samples", epoch, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
