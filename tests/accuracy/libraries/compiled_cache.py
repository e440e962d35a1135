# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# lines = [85, 89, 115]
# branch = ["os.path.isfile(target)"]
# source = "https://github.com/unslothai/unsloth-zoo/pull/967"
# ///
import importlib.util
import logging
import os
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("patcher")


@dataclass
class PatchConfig:
    run_id: str = os.environ.get("MASTER_PORT", "0")
    targets: tuple = ("loss_fused", "rope_inplace", "logits_chunked")
    settle_s: float = 2.0
    shards: dict = field(default_factory=lambda: {0: 3, 1: 48, 2: 3})

    @property
    def cache_dir(self):
        return os.path.join(tempfile.gettempdir(), f"compiled_cache_{self.run_id}")


TEMPLATE = textwrap.dedent(
    """
    import torch

    def {name}(x):
        return torch.nn.functional.gelu(x) * {scale}
    """
)


class VocabScanner:
    """Walks over the shards given to this process and collects the symbols in use."""

    def __init__(self, count, delay=0.12):
        self.count = count
        self.delay = delay
        self.symbols = set()

    def _read(self, index):
        time.sleep(self.delay)
        return {f"s{index}_{k}" for k in range(50)}

    def run(self):
        for index in range(self.count):
            self.symbols |= self._read(index)
        return len(self.symbols)


class FunctionCache:
    def __init__(self, accelerator, cfg):
        self.acc = accelerator
        self.cfg = cfg
        os.makedirs(cfg.cache_dir, exist_ok=True)

    def _emit(self, path, source):
        staged = f"{path}.{os.getpid()}.tmp"
        with open(staged, "w") as fh:
            fh.write(source)
        compile(source, staged, "exec")
        time.sleep(self.cfg.settle_s)
        os.replace(staged, path)

    def create(self, name, scale):
        target = os.path.join(self.cfg.cache_dir, name + ".py")
        if not os.path.isfile(target):
            log.info("building %s", target)
            if self.acc.is_main_process:
                self._emit(target, TEMPLATE.format(name=name, scale=scale))
            self.acc.wait_for_everyone()
        return self._load(name, target)

    @staticmethod
    def _load(name, path):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


class Block(nn.Module):
    def __init__(self, fns):
        super().__init__()
        self.lin = nn.Linear(16, 16)
        self.fns = fns

    def forward(self, x):
        x = self.lin(x)
        for fn in self.fns:
            x = fn(x)
        return x


def agree_on_vocab(acc, size):
    local = torch.tensor([size], dtype=torch.long)
    return int(acc.gather(local).max())


def main():
    cfg = PatchConfig()
    kw = InitProcessGroupKwargs(backend="gloo", timeout=timedelta(hours=2))
    acc = Accelerator(cpu=True, kwargs_handlers=[kw])
    acc.wait_for_everyone()

    scanner = VocabScanner(cfg.shards.get(acc.process_index, 3))
    found = scanner.run()
    cache = FunctionCache(acc, cfg)
    fns = [cache.create(cfg.targets[0], scale=0.5)]
    vocab = agree_on_vocab(acc, found)
    fns += [cache.create(n, scale=1.0) for n in cfg.targets[1:]]

    model = Block(fns)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, opt = acc.prepare(model, opt)
    for step in range(50):
        loss = model(torch.randn(4, 16)).pow(2).mean()
        acc.backward(loss)
        opt.step()
        opt.zero_grad()
    log.info("done, vocab=%d", vocab)
    acc.end_training()


if __name__ == "__main__":
    main()
