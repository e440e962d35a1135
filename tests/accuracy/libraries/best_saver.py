# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109", "HD303"]
# culprits = [0]
# culprits_any = [[0], [1, 2, 3]]
# lines = [39, 50, 53, 71, 80, 83]
# branch = ["os.path.isdir(self.cfg.bucket)", "self.store.mounted", "os.environ.get('GROUP_RANK') == os.environ.get('LOCAL_RANK')"]
# source = "https://github.com/pytorch/ignite/pull/3823"
# ///
"""Ignite training with an optional checkpoint store that is mounted on some nodes."""
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("saver")


@dataclass
class Config:
    bucket: str
    epochs: int = 6
    batches: int = 10
    features: int = 12
    warm_epochs: int = 2

    @classmethod
    def from_env(cls) -> "Config":
        mount = os.path.join(tempfile.gettempdir(), f"bucket-{os.environ['MASTER_PORT']}-{os.environ['LOCAL_RANK']}")
        if os.environ.get('GROUP_RANK') == os.environ.get('LOCAL_RANK'):
            os.makedirs(mount, exist_ok=True)
        return cls(bucket=mount)


class ModelStore:
    def __init__(self, cfg: Config):
        self.cfg = cfg

    @property
    def mounted(self) -> bool:
        return os.path.isdir(self.cfg.bucket)

    def handler(self, objects: dict) -> Checkpoint:
        saver = DiskSaver(self.cfg.bucket, create_dir=False, require_empty=False)
        return Checkpoint(objects, saver, n_saved=2, filename_prefix="best")


class Experiment:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.model = DDP(torch.nn.Linear(cfg.features, 3))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.store = ModelStore(cfg)
        self.engine = Engine(self._update)
        self.engine.add_event_handler(Events.EPOCH_COMPLETED, self._report)
        self.engine.add_event_handler(Events.EPOCH_COMPLETED(once=cfg.warm_epochs), self._start_saving)

    def _update(self, engine: Engine, batch):
        x, y = batch
        self.opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def _report(self, engine: Engine) -> None:
        if engine.state.epoch % 2 == 0:
            log.info("rank %d epoch %d loss %.3f", dist.get_rank(), engine.state.epoch, engine.state.output)

    def _start_saving(self, engine: Engine) -> None:
        if not self.store.mounted:
            log.info("rank %d: no store here", dist.get_rank())
            return
        handler = self.store.handler({"model": self.model, "opt": self.opt})
        engine.add_event_handler(Events.EPOCH_COMPLETED(every=2), handler)

    def batches(self):
        gen = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(self.cfg.batches):
            yield torch.randn(16, self.cfg.features, generator=gen), torch.randint(0, 3, (16,), generator=gen)

    def run(self) -> None:
        self.engine.run(list(self.batches()), max_epochs=self.cfg.epochs)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    log.setLevel(logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    exp = Experiment(Config.from_env())
    exp.run()
    dist.barrier()
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
