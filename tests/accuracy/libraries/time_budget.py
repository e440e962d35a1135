# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD103"]
# culprits = [0]
# lines = [71, 72, 97, 104, 105, 109, 110, 126, 127]
# branch = ["self.clock.elapsed() > self.budget_s", "elapsed() > self.budget_s"]
# source = "https://github.com/alipay/ant-xgboost/pull/21"
# ///
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

log = logging.getLogger("boost")


class EarlyStop(Exception):
    def __init__(self, round_no, message):
        super().__init__(message)
        self.round_no = round_no


@dataclass
class BoostConfig:
    rounds: int = 400
    budget_s: float = 9.0
    rows: tuple = (200, 1400, 1450)
    shrinkage: float = 0.1


class Stopwatch:
    def __init__(self):
        self.begin = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.begin


class RowReader:
    """Reads rows from a line server that answers a few hundred rows a second."""

    def __init__(self, rows, rate=350):
        self.rows = rows
        self.rate = rate

    def load(self):
        chunks = []
        left = self.rows
        while left > 0:
            n = min(100, left)
            time.sleep(n / self.rate)
            chunks.append(torch.randn(n, 5))
            left -= n
        x = torch.cat(chunks)
        return x, (x[:, 0] * x[:, 1]).unsqueeze(1)


class MaxRunningTime:
    def __init__(self, budget_s, clock):
        self.budget_s = budget_s
        self.clock = clock

    def __call__(self, round_no, metric):
        if self.clock.elapsed() > self.budget_s:
            raise EarlyStop(round_no, f"time is up in round {round_no}, metric {metric:.4f}")


class Logging:
    def __init__(self, acc, period=20):
        self.acc = acc
        self.period = period

    def __call__(self, round_no, metric):
        if round_no % self.period == 0 and self.acc.is_main_process:
            log.info("[%d] mse %.4f", round_no, metric)


class Booster:
    def __init__(self, cfg, acc):
        self.cfg, self.acc = cfg, acc
        self.learner = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
        self.opt = torch.optim.SGD(self.learner.parameters(), lr=cfg.shrinkage)
        self.best = (0, float("inf"))

    def round(self, x, y):
        loss = (self.learner(x) - y).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.learner.parameters():
            p.grad = self.acc.reduce(p.grad, reduction="mean")
        self.opt.step()
        time.sleep(0.08)
        return loss.item()

    def train(self, x, y, callbacks):
        try:
            for n in range(self.cfg.rounds):
                metric = self.round(x, y)
                if metric < self.best[1]:
                    self.best = (n, metric)
                for cb in callbacks:
                    cb(n, metric)
        except EarlyStop as stop:
            log.info("%s", stop)
            return stop.round_no
        return self.cfg.rounds


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    kw = InitProcessGroupKwargs(backend="gloo", timeout=timedelta(hours=1))
    acc = Accelerator(cpu=True, kwargs_handlers=[kw])
    cfg = BoostConfig()
    acc.wait_for_everyone()
    x, y = RowReader(cfg.rows[acc.process_index]).load()
    clock = Stopwatch()
    booster = Booster(cfg, acc)
    last = booster.train(x, y, [MaxRunningTime(cfg.budget_s, clock), Logging(acc)])
    best = acc.gather(torch.tensor([booster.best[1]]))
    log.info("stopped after %d rounds, best %s", last, best.tolist())
    acc.end_training()


if __name__ == "__main__":
    main()
