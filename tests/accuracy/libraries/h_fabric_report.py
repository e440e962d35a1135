# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "healthy"
# ///
import logging
import multiprocessing as mp
import os
import time
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
from lightning.fabric import Fabric  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("report")


def bootstrap(seed, errors, seconds):
    """One share of the bootstrap intervals: pure computing."""
    gen = torch.Generator().manual_seed(seed)
    end, means = time.monotonic() + seconds, []
    while time.monotonic() < end:
        pick = torch.randint(0, len(errors), (len(errors),), generator=gen)
        means.append(float(errors[pick].mean()))
        time.sleep(0.002)
    return min(means), max(means)


def _share(task):
    torch.set_num_threads(1)
    return bootstrap(*task)


class Report:
    """Made by one rank after every epoch, with two processes for the intervals."""

    def __init__(self, seconds=8.0):
        self.seconds = seconds

    def make(self, model, x, y):
        with torch.no_grad():
            errors = (model(x) - y).pow(2).flatten()
        with mp.get_context("fork").Pool(2) as pool:
            spans = pool.map(_share, [(s, errors, self.seconds) for s in range(2)])
        return min(s[0] for s in spans), max(s[1] for s in spans)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x)


def train_epoch(fabric, model, opt, loader):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        fabric.backward(loss)
        opt.step()
    return fabric.all_reduce(loss.detach()).item()


def main():
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    fabric.seed_everything(3)
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(240, 8, generator=gen)
    y = x.sum(1, keepdim=True)
    net = Net()
    model, opt = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, y), batch_size=10))
    report = Report()
    for epoch in range(2):
        loss = train_epoch(fabric, model, opt, loader)
        if fabric.is_global_zero:
            low, high = report.make(net, x, y)
            log.info("epoch %d loss %.4f interval %.4f .. %.4f", epoch, loss, low, high)
        fabric.barrier("report")
    log.info("done")


if __name__ == "__main__":
    main()
