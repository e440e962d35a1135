# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD508"]
# culprits = [1, 3]
# culprits_any = [[0, 2], [0, 1, 2, 3], [1], [3]]
# lines = [66, 69, 71, 73, 74, 75, 117]
# branch = ["self.signal.exists()", "self.local_rank == 0"]
# watch = "--give-up-after 8"
# source = "https://github.com/mosaicml/composer/pull/2071"
# ///
"""Resumes from an object store: the first rank of each (two-rank) host copies the checkpoint, its neighbour waits for the copy through a marker file."""
import json
import logging
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("resume")
RANKS_PER_HOST = 2


@dataclass(frozen=True)
class CheckpointRef:
    bucket: str
    run: str
    step: int

    @property
    def uri(self):
        return f"{self.bucket}/{self.run}/step{self.step:06d}.pt"


class ObjectStore:
    def __init__(self, root):
        self.root = root

    def put(self, ref, state):
        target = self.root / ref.uri
        target.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, target.with_suffix(".part"))
        os.replace(target.with_suffix(".part"), target)

    def download(self, ref, target):
        shutil.copyfile(self.root / ref.uri, target)


class HostDownload:
    """One download a host; the marker's name is short and unique to the checkpoint."""

    def __init__(self, store, ref, scratch):
        self.store, self.ref = store, ref
        rank = dist.get_rank()
        self.local_rank = rank % RANKS_PER_HOST
        self.host_dir = scratch / f"host{rank // RANKS_PER_HOST}"
        self.host_dir.mkdir(parents=True, exist_ok=True)
        self.target = self.host_dir / "resume.pt"
        self.signal = self.host_dir / f".done_{abs(hash(ref)) % 10**12:x}"

    def fetch(self):
        if self.local_rank == 0:
            self.store.download(self.ref, self.target)
            self.signal.write_text(json.dumps(asdict(self.ref)))
        else:
            while not self.signal.exists():
                time.sleep(0.1)
        dist.barrier()
        return torch.load(self.target, weights_only=True)


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.step = 0

    def state(self):
        return {"model": self.model.state_dict(), "step": self.step}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.step = state["step"]

    def run(self, steps):
        for _ in range(steps):
            loss = self.model(torch.randn(8, 16)).pow(2).mean()
            self.model.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.data.sub_(p.grad, alpha=2e-3)
            self.step += 1


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    scratch = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "resume_job"
    store = ObjectStore(scratch / "store")
    ref = CheckpointRef("s3", "tiny-mlp", 40)
    trainer = Trainer()
    trainer.run(40)
    if rank == 0:
        store.put(ref, trainer.state())
    dist.barrier()
    log.info("restarting from %s", ref.uri)
    resumed = Trainer()
    resumed.load(HostDownload(store, ref, scratch).fetch())
    resumed.run(40)
    log.info("at step %d", resumed.step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
