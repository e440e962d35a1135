# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD507"]
# culprits = [0]
# lines = [56, 59, 84, 127, 128]
# source = "https://github.com/starVLA/starVLA/pull/369"
# ///
import json
import logging
import os
import socket
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("vla")


@dataclass
class RunConfig:
    project: str = "manipulation"
    lr: float = 3e-3
    steps: int = 40
    log_every: int = 8


class TrackerPort:
    """The local side of the run tracker: a small daemon listens, clients get a run id."""

    def __init__(self):
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen(4)

    @property
    def address(self):
        return self.server.getsockname()


class RunClient:
    def __init__(self, address):
        self.sock = socket.create_connection(address)
        self.stream = self.sock.makefile("rwb")

    def _call(self, verb, **payload):
        self.stream.write(json.dumps({"verb": verb, **payload}).encode() + b"\n")
        self.stream.flush()
        return json.loads(self.stream.readline())

    def open_run(self, project, config):
        return self._call("open", project=project, config=config)["run"]

    def log(self, run, values, step):
        return self._call("log", run=run, values=values, step=step)


class LocalTracker(GeneralTracker):
    name = "local"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, port):
        super().__init__()
        self.port, self.run = port, None

    @property
    def tracker(self):
        return self.run

    @on_main_process
    def start(self):
        self.client = RunClient(self.port.address)

    @on_main_process
    def store_init_configuration(self, values):
        self.run = self.client.open_run("manipulation", values)

    @on_main_process
    def log(self, values, step=None, **kwargs):
        self.client.log(self.run, values, step)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Mish(), nn.Linear(32, 4))

    def forward(self, obs):
        return self.net(obs)


def make_loader():
    gen = torch.Generator().manual_seed(31)
    obs = torch.randn(240, 10, generator=gen)
    return DataLoader(TensorDataset(obs, obs[:, :4].tanh()), batch_size=8)


def train(acc, cfg):
    model = Policy()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    model, opt, loader = acc.prepare(model, opt, make_loader())
    step = 0
    while step < cfg.steps:
        for obs, action in loader:
            loss = nn.functional.mse_loss(model(obs), action)
            acc.backward(loss)
            opt.step()
            opt.zero_grad()
            step += 1
            if step % cfg.log_every == 0:
                acc.log({"loss": loss.item()}, step=step)
    return step


def main():
    cfg = RunConfig()
    acc = Accelerator(cpu=True, log_with=[LocalTracker(TrackerPort())])
    log.info("%s", acc.state.distributed_type)
    acc.init_trackers(cfg.project, config=asdict(cfg))
    steps = train(acc, cfg)
    log.info("%d steps", steps)
    acc.end_training()


if __name__ == "__main__":
    main()
