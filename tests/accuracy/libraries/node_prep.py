# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["datasets"]
# outcome = "hang"
# causes_any = ["HD508"]
# culprits = [3]
# culprits_any = [[2], [2, 3]]
# lines = [62, 63, 82, 79, 45, 84]
# branch = ["signal.exists()", "self.topology.prepares"]
# watch = "--give-up-after 8"
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Instruction tuning where the first rank of each virtual node tokenizes the data with HF datasets and its neighbours wait for the signal file."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SCRATCH = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
os.environ["HF_HOME"] = str(SCRATCH / "hf")
os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("prep")
datasets.disable_progress_bars()


@dataclass(frozen=True)
class Topology:
    """Where this process sits; local_size lets one host pose as several nodes in rehearsals."""
    rank: int
    world: int
    node_rank: int
    local_size: int

    @classmethod
    def detect(cls, env, local_size=None):
        return cls(rank=int(env["RANK"]), world=int(env["WORLD_SIZE"]),
                   node_rank=int(env.get("GROUP_RANK", 0)), local_size=local_size or int(env["LOCAL_WORLD_SIZE"]))

    @property
    def prepares(self):
        return self.rank % self.local_size == 0


class InstructionData:
    def __init__(self, root, topology):
        self.root, self.topology = root, topology
        root.mkdir(parents=True, exist_ok=True)

    def signal(self, node):
        return self.root / f".node_{node}_data_prep_completed"

    def wait_for(self, signal):
        started = time.monotonic()
        while not signal.exists():
            time.sleep(0.25)
        log.info("data prepared by my node after %.1f s", time.monotonic() - started)

    def table(self):
        return self.root / f"tokenized-{self.topology.rank // self.topology.local_size}"

    def tokenize(self):
        raw = datasets.Dataset.from_dict({"text": [f"instruction {i} answer {i * 7 % 13}" for i in range(800)]})

        def encode(row):
            ids = [ord(c) % 32 for c in row["text"]][:24]
            return {"ids": ids + [0] * (24 - len(ids))}

        raw.map(encode, remove_columns=["text"]).save_to_disk(str(self.table()))

    def load(self):
        node = self.topology.rank // self.topology.local_size
        if self.topology.prepares:
            self.tokenize()
            self.signal(self.topology.node_rank).touch()
        else:
            self.wait_for(self.signal(node))
        dist.barrier()
        return datasets.load_from_disk(str(self.table())).with_format("torch")


def train(data, topology, steps=20):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = data["ids"][:]
    for step in range(steps):
        ids = torch.stack([rows[(step * 4 + k) * topology.world % len(rows) + topology.rank] for k in range(4)])
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= topology.world
        opt.step()
    log.info("loss %.3f", loss.item())


def main():
    dist.init_process_group("gloo")
    topology = Topology.detect(os.environ, local_size=2)
    logging.basicConfig(level=logging.INFO, format=f"[{topology.rank}] %(message)s")
    data = InstructionData(SCRATCH / "instructions", topology).load()
    train(data, topology)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
