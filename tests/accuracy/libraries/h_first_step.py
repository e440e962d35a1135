# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/108971"
# ///
"""The first step compiles: one rank finds its kernel in the cache, the other builds a chain of small C++ objects with the compiler."""
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

SOURCE = """#include <map>
#include <regex>
#include <string>
#include <vector>
int kernel_{i}(int n) {{ std::map<std::string, std::vector<int>> m; std::regex r("a+{i}"); m["x"].push_back(n);
return std::regex_search("aaa{i}", r) ? m["x"][0] + {i} : 0; }}
"""


@dataclass
class BuildConfig:
    seconds: float = 30.0
    rank: int = 1


class Builder:
    def __init__(self, cfg):
        self.cfg, self.folder = cfg, Path(tempfile.mkdtemp())

    def compile(self, i):
        source = self.folder / f"kernel{i}.cpp"
        source.write_text(SOURCE.format(i=i))
        command = ["g++", "-O2", "-fPIC", "-c", str(source), "-o", str(source.with_suffix(".o"))]
        return subprocess.run(command, capture_output=True).returncode

    def build(self):
        end, i = time.monotonic() + self.cfg.seconds, 0
        while time.monotonic() < end:
            self.compile(i)
            i += 1
        return i


class FusedLinear(nn.Module):
    def __init__(self, builder):
        super().__init__()
        self.inner, self.builder, self.built = nn.Linear(4, 4), builder, False

    def forward(self, x):
        if not self.built and dist.get_rank() == self.builder.cfg.rank:
            self.builder.build()
        self.built = True
        return self.inner(x)


def main():
    dist.init_process_group("gloo")
    model = FusedLinear(Builder(BuildConfig()))
    for _ in range(5):
        model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
