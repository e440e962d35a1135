# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# cause = "HD112"
# culprits = [1]
# lines = [30, 35, 36, 40, 64]
# source = "https://github.com/kyutai-labs/pocket-tts/pull/277"
# ///
"""A walltime alarm saves a checkpoint from inside the signal handler, after a barrier of its own group.  Only the node of
rank 1 has the alarm set, so its handler runs a barrier in the middle of a training step."""
import os
import signal
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.regression import MeanSquaredError


class Saver:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.group = dist.new_group()
        self.saved = []

    def save(self, tag):
        dist.barrier(group=self.group)
        if dist.get_rank() == 0:
            torch.save(self.model.state_dict(), os.path.join(self.folder, f"{tag}.pt"))
        self.saved.append(tag)

    def on_alarm(self, signum, frame):
        self.save("walltime")

    def arm(self, seconds):
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)


class Fit:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-2)
        self.metric = MeanSquaredError()
        self.saver = Saver(self.model, tempfile.mkdtemp())

    def step(self):
        x = torch.randn(64, 64)
        y = self.model(x)
        loss = (y - x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.metric.update(y.detach(), x)

    def run(self, epochs, steps):
        for epoch in range(epochs):
            for _ in range(steps):
                self.step()
            value = self.metric.compute()
            self.metric.reset()
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {value:.3f}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    fit = Fit()
    limit = {"1": 4.0}.get(os.environ["RANK"])
    if limit:
        fit.saver.arm(limit)
    fit.run(epochs=40, steps=150)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
