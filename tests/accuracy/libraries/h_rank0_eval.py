# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/54059"
# ///
"""The main process evaluates on its own for a long while; the others wait for its verdict."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("verdict")


@dataclass
class Config:
    epochs: int = 2
    eval_seconds: float = 9.0
    target: float = 0.9


class Verdict:
    def __init__(self, accelerator, cfg):
        self.accelerator, self.cfg = accelerator, cfg

    @torch.no_grad()
    def search_threshold(self, net, x, y) -> float:
        """Bootstraps the threshold for a fixed budget of time."""
        end = time.monotonic() + self.cfg.eval_seconds
        best, rounds = 0.0, 0
        g = torch.Generator().manual_seed(0)
        while time.monotonic() < end:
            pick = torch.randint(0, len(x), (256,), generator=g)
            p = net(x[pick]).sigmoid().squeeze(1)
            for t in torch.linspace(0.2, 0.8, 13):
                best = max(best, ((p > t).float() == y[pick]).float().mean().item())
            rounds += 1
            time.sleep(0.002)
        log.info("%d bootstrap rounds, best %.3f", rounds, best)
        return best

    def decide(self, model, x, y) -> bool:
        payload = [None]
        if self.accelerator.is_main_process:
            net = self.accelerator.unwrap_model(model).eval()
            payload = [self.search_threshold(net, x, y)]
            net.train()
        broadcast_object_list(payload, from_process=0)
        return payload[0] >= self.cfg.target


def main():
    logging.basicConfig(level=logging.INFO)
    cfg = Config()
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    x = torch.randn(600, 8)
    y = (x.sum(1) > 0).float()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
    net, opt, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=5e-3), loader)
    verdict = Verdict(accelerator, cfg)
    for epoch in range(cfg.epochs):
        for a, b in loader:
            opt.zero_grad()
            accelerator.backward(nn.functional.binary_cross_entropy_with_logits(net(a).squeeze(1), b))
            opt.step()
        enough = verdict.decide(net, x, y)
        accelerator.print(f"epoch {epoch}: enough={enough}")
    accelerator.wait_for_everyone()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
