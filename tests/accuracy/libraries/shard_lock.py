# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock", "safetensors"]
# outcome = "hang"
# causes_any = ["HD504", "HD101", "HD109"]
# culprits = [2]
# lines = [70, 74, 75, 79, 115]
# branch = ["target.exists()", "not target.exists()"]
# source = "https://github.com/mosaicml/composer/pull/2903"
# ///
"""Pull a sharded checkpoint into a node-wide cache, then load it on every rank."""
import json
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from safetensors.torch import load_file, save_file

log = logging.getLogger("pull")


@dataclass
class Config:
    base: Path
    dim: int = 64
    layers: int = 6

    @property
    def remote(self) -> Path:
        return self.base / "remote"

    @property
    def cache(self) -> Path:
        return self.base / "cache"


def publish(cfg: Config) -> None:
    shutil.rmtree(cfg.base, ignore_errors=True)
    cfg.remote.mkdir(parents=True)
    index = {}
    for n in range(cfg.layers):
        name = f"layer-{n}.safetensors"
        save_file({"w": torch.full((cfg.dim, cfg.dim), float(n))}, str(cfg.remote / name))
        index[name] = (cfg.remote / name).stat().st_size
    (cfg.remote / "index.json").write_text(json.dumps(index))


class ShardCache:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.cfg.cache.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(str(cfg.cache / ".lock"))
        self.index = json.loads((cfg.remote / "index.json").read_text())

    def _copy(self, name: str) -> None:
        part = self.cfg.cache / (name + ".part")
        shutil.copyfile(self.cfg.remote / name, part)
        part.rename(self.cfg.cache / name)

    def _complete(self) -> None:
        log.info("rank %d: all %d shards are on this node", dist.get_rank(), len(self.index))
        dist.barrier()

    def pull(self) -> Path:
        target = self.cfg.cache / "COMPLETE"
        with self.lock:
            if not target.exists():
                for name in self.index:
                    self._copy(name)
                target.touch()
                self._complete()
        return self.cfg.cache


class Model(torch.nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(cfg.dim, cfg.dim, bias=False) for _ in range(cfg.layers))

    def load_from(self, folder: Path) -> None:
        for n, layer in enumerate(self.layers):
            layer.weight.data.copy_(load_file(str(folder / f"layer-{n}.safetensors"))["w"])


def build_vocab(rank: int) -> dict:
    """Ranks build the word tables of their own languages meanwhile."""
    words = [4, 3, 1, 5][rank % 4] * 30_000
    start, table = time.time(), {}
    for k in range(words):
        table[f"w{k}"] = hash((rank, k)) % 1000
    time.sleep(words / 60_000)
    log.info("rank %d: %d words in %.1fs", rank, len(table), time.time() - start)
    return table


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("filelock").setLevel(logging.WARNING)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank = dist.get_rank()
    cfg = Config(Path(tempfile.gettempdir()) / f"pull-{os.environ['MASTER_PORT']}")
    if rank == 0:
        publish(cfg)
    dist.barrier()
    vocab = build_vocab(rank)
    model = Model(cfg)
    model.load_from(ShardCache(cfg).pull())
    total = torch.tensor([sum(p.sum().item() for p in model.parameters()), float(len(vocab))])
    dist.all_reduce(total)
    log.info("rank %d: checksum %.0f", rank, total[0].item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
