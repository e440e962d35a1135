# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [5]
# lines = [36, 40, 56, 57, 77, 83, 84]
# branch = ["raise", "__exit__", "except", "ValueError", "ids.max()"]
# source = "https://github.com/mlc-ai/pith-train/pull/31"
# ///
"""A session object whose __exit__ synchronizes all ranks before it closes the log. The last rank raises in a step; the exception is
pending while it waits there for the others, who wait for its gradients."""
import io
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class SessionConfig:
    name: str = "run-17"
    steps: int = 40
    vocabulary: int = 64


class Session:
    def __init__(self, cfg):
        self.cfg, self.log = cfg, io.StringIO()

    def __enter__(self):
        self.log.write(f"{self.cfg.name} starts\n")
        return self

    def close(self):
        dist.barrier()
        self.log.close()

    def __exit__(self, kind, value, trace):
        self.close()
        return False


class Tokens:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def batch(self, step):
        ids = torch.randint(self.cfg.vocabulary, (4, 6))
        if self.rank == 5 and step == 13:
            ids[2, 3] = self.cfg.vocabulary + 5
        return ids

    def checked(self, step):
        ids = self.batch(step)
        if int(ids.max()) >= self.cfg.vocabulary:
            raise ValueError(f"token {int(ids.max())} outside of the vocabulary")
        return ids


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed, self.head = nn.Embedding(cfg.vocabulary, 8), nn.Linear(8, cfg.vocabulary)

    def forward(self, ids):
        return self.head(self.embed(ids)).mean()


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.tokens = cfg, Tokens(cfg, dist.get_rank())
        self.model = nn.parallel.DistributedDataParallel(Model(cfg))

    def fit(self):
        for step in range(self.cfg.steps):
            self.model(self.tokens.checked(step)).backward()


def main():
    dist.init_process_group("gloo")
    cfg = SessionConfig()
    with Session(cfg):
        Trainer(cfg).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
