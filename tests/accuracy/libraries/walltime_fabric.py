# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits = [0]
# lines = [52, 56, 98]
# branch = ["state.step < self.cfg.max_steps and not self.guard.requested", "not self.guard.requested", "self.guard.requested"]
# source = "https://github.com/kyutai-labs/pocket-tts/pull/277"
# ///
"""Train with Lightning Fabric until the steps are done or the scheduler asks to leave."""
import logging
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import torch
from lightning.fabric import Fabric
from torch import nn

log = logging.getLogger("walltime")


@dataclass
class FabricConfig:
    max_steps: int = 1_000_000
    notice_s: float = 4.0
    lr: float = 1e-2
    devices: int = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@dataclass
class TrainState:
    step: int = 0
    losses: list = field(default_factory=list)


class PreemptionGuard:
    """Remembers the signals that the batch system sends ahead of the limit."""

    SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)

    def __init__(self):
        self._requested = set()
        for s in self.SIGNALS:
            signal.signal(s, self._note)

    def _note(self, signum, frame):
        self._requested.add(signum)

    @property
    def requested(self) -> bool:
        return bool(self._requested)


class BatchScriptNotice:
    """Stands for `--signal=B:USR1@60`: the batch shell notifies the process whose pid is in the file."""

    def __init__(self, fabric: Fabric, cfg: FabricConfig):
        self.path = os.path.join(tempfile.gettempdir(), "job_%s.pid" % os.environ.get("MASTER_PORT", "0"))
        self.proc = None
        if fabric.is_global_zero:
            with open(self.path, "w") as f:
                f.write(str(os.getpid()))
            shell = f"sleep {cfg.notice_s}; kill -USR1 $(cat {self.path})"
            self.proc = subprocess.Popen(["/bin/sh", "-c", shell])

    def close(self):
        if self.proc is not None:
            self.proc.wait()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 40), nn.SiLU(), nn.Linear(40, 12))

    def forward(self, x):
        return self.layers(x)


class Loop:
    def __init__(self, fabric: Fabric, cfg: FabricConfig, guard: PreemptionGuard):
        self.fabric, self.cfg, self.guard = fabric, cfg, guard
        torch.manual_seed(0)
        net = Net()
        self.model, self.opt = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=cfg.lr))

    def batch(self):
        x = torch.randn(8, 12)
        return x, x.flip(1)

    def train(self) -> TrainState:
        state = TrainState()
        while state.step < self.cfg.max_steps and not self.guard.requested:
            x, y = self.batch()
            self.opt.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            self.fabric.backward(loss)
            self.opt.step()
            state.step += 1
            if state.step % 100 == 0:
                state.losses.append(loss.item())
            self.pace()
        return state

    def pace(self):
        signal.sigtimedwait([], 0.01)

    def save(self, state: TrainState):
        path = os.path.join(tempfile.gettempdir(), "fabric_%s.ckpt" % os.environ.get("MASTER_PORT", "0"))
        self.fabric.barrier("before-save")
        self.fabric.save(path, {"model": self.model, "step": state.step})
        self.fabric.print(f"saved step {state.step}")


def main():
    logging.basicConfig(level=logging.INFO)
    cfg = FabricConfig()
    fabric = Fabric(accelerator="cpu", devices=cfg.devices, strategy="ddp")
    fabric.launch()
    guard = PreemptionGuard()
    loop = Loop(fabric, cfg, guard)
    notice = BatchScriptNotice(fabric, cfg)
    state = loop.train()
    loop.save(state)
    notice.close()
    log.info("rank %d left at step %d", fabric.global_rank, state.step)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
