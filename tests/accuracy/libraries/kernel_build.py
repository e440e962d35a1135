# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD504", "HD508", "HD507", "HD103", "HD101"]
# culprits_any = [[0], [1, 2], [1], [2]]
# lines = [61, 70, 71, 75, 99, 101]
# branch = ["self.baton.try_acquire()", "proc.returncode != 0", "not self._compile()", "os.path.exists(self.lock_file_path)"]
# source = "https://github.com/pytorch/pytorch/issues/189245"
# ///
"""Builds lookup tables of a quantised kernel in a child process, under the same file baton as cpp_extension uses."""
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

logger = logging.getLogger("qkernel")

BUILDER = r"""
import json, os, resource, sys
out, bits, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
levels = 1 << bits
if bits > 6:
    acc = 0
    while True:
        acc = (acc * 31 + levels) % 1000003
with open(out + ".tmp", "w") as f:
    json.dump([(2.0 * i / (levels - 1)) - 1.0 for i in range(levels)], f)
os.replace(out + ".tmp", out)
"""


@dataclass(frozen=True)
class KernelSpec:
    name: str
    bits: int
    cpu_seconds: int = 1


class TableBuilder:
    def __init__(self, root, spec):
        self.root = Path(root)
        self.spec = spec
        self.table_file = self.root / f"{spec.name}_{spec.bits}.json"
        self.baton = FileBaton(str(self.root / f"{spec.name}.lock"), wait_seconds=0.2)

    def _compile(self):
        cmd = [sys.executable, "-S", "-c", BUILDER, str(self.table_file), str(self.spec.bits), str(self.spec.cpu_seconds)]
        proc = subprocess.run(cmd, capture_output=True, text=True)
        if proc.returncode != 0:
            name = signal.Signals(-proc.returncode).name if proc.returncode < 0 else proc.returncode
            logger.warning("%s: builder ended with %s, using the reference kernel", self.spec.name, name)
            return False
        return True

    def build(self):
        if self.table_file.exists():
            return self._load()
        if self.baton.try_acquire():
            if not self._compile():
                return None
            self.baton.release()
        else:
            self.baton.wait()
        return self._load()

    def _load(self):
        return torch.tensor(eval(self.table_file.read_text()))


class QuantLinear:
    def __init__(self, width, spec, table):
        gen = torch.Generator().manual_seed(spec.bits)
        self.weight = torch.rand(width, width, generator=gen) * 2 - 1
        self.table = table

    def __call__(self, x):
        w = self.weight
        if self.table is not None:
            w = self.table[(w[..., None] - self.table).abs().argmin(dim=-1)]
        return torch.tanh(x @ w)


def load_layers(root, specs, width=16):
    layers = []
    for spec in specs:
        time.sleep(0.4 * int(os.environ["LOCAL_RANK"]))
        table = TableBuilder(root, spec).build()
        layers.append(QuantLinear(width, spec, table))
        dist.barrier()
    return layers


def calibrate(layers, rounds):
    for r in range(rounds):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(r))
        for layer in layers:
            x = layer(x)
        peak = x.abs().max()
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    return peak


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    root = Path(tempfile.gettempdir()) / f"qkernel_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    specs = [KernelSpec("gate", 4), KernelSpec("up", 5), KernelSpec("down", 8)]
    layers = load_layers(root, specs)
    peak = calibrate(layers, rounds=10)
    logger.info("peak %.4f", peak)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
