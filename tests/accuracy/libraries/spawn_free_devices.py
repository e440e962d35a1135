# /// hangdoc
# launch = "python spawn_free_devices.py"
# outcome = "hang"
# causes_any = ["HD301"]
# culprits_any = [[3]]
# lines = [58, 68, 84]
# branch = ["device.free_mb >= self.cfg.need_mb"]
# source = "https://github.com/pytorch/pytorch/issues/52848"
# ///
"""A launcher that starts one trainer on every device with enough free memory, by mp.spawn.
The world size comes from the configuration, the number of children from the devices: one device is occupied, rank 3 is never started."""
import logging
import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("launch")


@dataclass
class LaunchConfig:
    world_size: int = 4
    need_mb: int = 2000
    hidden: int = 16
    steps: int = 20
    port: int = 0


@dataclass
class Device:
    index: int
    free_mb: int


class Inventory:
    """What nvidia-smi would say; another user's notebook sits on device 2."""

    table = "0 15800\n1 15720\n2 310\n3 15800"

    def devices(self):
        for line in self.table.splitlines():
            index, free = line.split()
            yield Device(int(index), int(free))


class Launcher:
    def __init__(self, cfg: LaunchConfig):
        self.cfg = cfg

    def usable(self):
        return [device for device in Inventory().devices() if device.free_mb >= self.cfg.need_mb]

    def free_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def start(self):
        devices = self.usable()
        self.cfg.port = self.free_port()
        mp.spawn(train, args=(self.cfg, devices), nprocs=len(devices), join=True)


class Toy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def forward(self, x):
        return self.layers(x)


def setup(rank: int, cfg: LaunchConfig):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cfg.port), RANK=str(rank), WORLD_SIZE=str(cfg.world_size))
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))


def train(rank: int, cfg: LaunchConfig, devices):
    logging.basicConfig(level=logging.INFO)
    log.info("rank %d on device %d", rank, devices[rank].index)
    setup(rank, cfg)
    model = DDP(Toy(cfg.hidden))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(cfg.steps):
        x = torch.randn(8, cfg.hidden)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            log.info("step %d loss %.3f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    Launcher(LaunchConfig()).start()
