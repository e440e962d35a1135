# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/marin-community/marin/issues/7655"
# ///
"""Healthy: rank 1 builds a C++ operator with a compiler child (some 30 s and more, no CPU in the rank itself) after two epochs, then
the others load the result; meanwhile they wait in all_reduce."""
import ctypes
import logging
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("build")

SOURCE = r"""
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
template <std::size_t N> struct Poly {
    static double eval(double x) { std::map<std::tuple<int, std::array<double, N % 7 + 1>>, std::vector<double>> m;
        std::array<double, N % 7 + 1> a{}; a.fill(x); m[{int(N), a}].push_back(x);
        std::function<double(double)> f = [&](double y) { return y * 0.5 + m.begin()->second.back() / N; };
        return f(Poly<N - 1>::eval(x)); }
};
template <> struct Poly<0> { static double eval(double x) { return x; } };
extern "C" double soft_poly(double x) { std::regex r("a+b*"); return std::regex_match("aab", r) ? Poly<DEPTH>::eval(x) : 0; }
"""


@dataclass
class BuildConfig:
    folder: Path
    depth: int = 520
    builder: int = 1
    epochs: int = 4
    build_after: int = 2


class NativeOp:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.lib = cfg, rank, None
        self.path = cfg.folder / "libsoftpoly.so"

    def build(self):
        if self.rank == self.cfg.builder and not self.path.exists():
            src = self.cfg.folder / "softpoly.cpp"
            src.write_text(SOURCE)
            cmd = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", f"-DDEPTH={self.cfg.depth}", "-o", str(self.path), str(src)]
            subprocess.run(cmd, check=True, capture_output=True)
            log.info("built %s", self.path.name)
        ready = torch.tensor([float(self.path.exists())])
        dist.all_reduce(ready)
        self.lib = ctypes.CDLL(str(self.path))
        self.lib.soft_poly.restype, self.lib.soft_poly.argtypes = ctypes.c_double, [ctypes.c_double]

    def __call__(self, x):
        return self.lib.soft_poly(float(x)) if self.lib else float(x)


def train_epoch(model, optim, op, epoch):
    for step in range(5):
        x = torch.randn(8, 6)
        optim.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optim.param_groups[0]["lr"] = 0.01 + 0.001 * op(epoch + step / 5)
        optim.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="build-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    cfg = BuildConfig(Path(box[0]))
    op = NativeOp(cfg, rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 1))
    optim = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(cfg.epochs):
        if epoch == cfg.build_after:
            op.build()
        loss = train_epoch(model, optim, op, epoch)
        if rank == 0:
            log.info("epoch %d loss %.3f", epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
