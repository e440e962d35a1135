# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [12, 13, 38, 98, 102]
# branch = ["dist.get_rank() == 0"]
# source = "https://github.com/open-mmlab/mmengine/pull/551"
# ///
"""A small hook-based runner with a sharded optimizer; helpers live in a module of the run folder."""
import importlib
import logging
import os
import sys
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("runner")

KIT = '''
import functools

import torch.distributed as dist


def master_only(func):
    """Run the function in the master process only."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return func(*args, **kwargs)
        return None

    return wrapper


class Hook:
    def before_run(self, runner):
        pass

    def after_train_iter(self, runner):
        pass

    def after_train_epoch(self, runner):
        pass

    def every_n_iters(self, runner, n):
        return n > 0 and (runner.iter + 1) % n == 0
'''


def load_kit():
    folder = os.path.join(tempfile.gettempdir(), "runner_%s_%s" % (os.environ["MASTER_PORT"], os.environ["RANK"]))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "runner_kit.py"), "w") as f:
        f.write(KIT)
    sys.path.insert(0, folder)
    return importlib.import_module("runner_kit")


kit = load_kit()


@dataclass
class RunnerConfig:
    epochs: int = 6
    iters: int = 10
    ckpt_interval: int = 33
    folder: str = ""


class LrHook(kit.Hook):
    def __init__(self, gamma):
        self.gamma = gamma

    def after_train_epoch(self, runner):
        for group in runner.optimizer.param_groups:
            group["lr"] *= self.gamma


class CheckpointHook(kit.Hook):
    def __init__(self, interval, folder):
        self.interval, self.folder = interval, folder

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, self.interval):
            log.info("rank %d saving at iter %d", dist.get_rank(), runner.iter + 1)
            self._save_checkpoint(runner)

    @kit.master_only
    def _save_checkpoint(self, runner):
        state = {"model": runner.model.module.state_dict(), "iter": runner.iter}
        if isinstance(runner.optimizer, ZeroRedundancyOptimizer):
            runner.optimizer.consolidate_state_dict(to=0)
        state["optimizer"] = runner.optimizer.state_dict()
        torch.save(state, os.path.join(self.folder, f"iter_{runner.iter + 1}.pth"))


class Runner:
    def __init__(self, cfg: RunnerConfig):
        self.cfg = cfg
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        self.model = DistributedDataParallel(net)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
        self.hooks = [LrHook(0.9), CheckpointHook(cfg.ckpt_interval, cfg.folder)]
        self.iter = 0

    def call_hook(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def train(self):
        self.call_hook("before_run")
        g = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(self.cfg.epochs):
            for _ in range(self.cfg.iters):
                x = torch.randn(16, 10, generator=g)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(x), (x.sum(1) > 0).long()).backward()
                self.optimizer.step()
                self.call_hook("after_train_iter")
                self.iter += 1
            self.call_hook("after_train_epoch")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    Runner(RunnerConfig(folder=tempfile.mkdtemp(prefix="ckpt_"))).train()
    dist.destroy_process_group()
