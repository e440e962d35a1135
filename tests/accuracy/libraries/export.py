# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "healthy"
# source = "https://github.com/EleutherAI/bergson/pull/444"
# ///
"""Training with a calibration stage that the main process runs alone, partly in a child process."""
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("calib")

CHILD = """
import json, sys, time, torch
torch.set_num_threads(1)
t0 = time.time(); a = torch.randn(120, 120); n = 0
while time.time() - t0 < 12:
    a = torch.linalg.qr(a @ a.T + torch.eye(120))[0]; n += 1
    time.sleep(0.02)
json.dump({"sweeps": n}, open(sys.argv[1], "w"))
"""


class Calibrator:
    def __init__(self, out):
        self.out = Path(out)

    def covariance(self, model, x):
        with torch.no_grad():
            h = model(x)
        return torch.linalg.eigvalsh(h.T @ h)

    def run(self, model, x):
        result = self.out / "sweeps.json"
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(result)])
        spectrum = self.covariance(model, x)
        while child.poll() is None:
            time.sleep(0.5)
        sweeps = json.loads(result.read_text())["sweeps"]
        deadline = time.time() + 6
        while time.time() < deadline:
            spectrum = spectrum.sort().values
            time.sleep(0.1)
        return spectrum, sweeps


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    set_seed(0)
    acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=1))])
    x = torch.randn(240, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    model, opt, loader = acc.prepare(model, opt, DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8))
    for epoch in range(2):
        for xb, yb in loader:
            opt.zero_grad()
            acc.backward(nn.functional.cross_entropy(model(xb), yb))
            opt.step()
        if acc.is_main_process:
            out = tempfile.mkdtemp(prefix="calib_%s_" % os.environ["MASTER_PORT"])
            spectrum, sweeps = Calibrator(out).run(acc.unwrap_model(model), x)
            log.info("epoch %d top %.3f after %d sweeps", epoch, spectrum[-1].item(), sweeps)
        acc.wait_for_everyone()
    acc.end_training()


if __name__ == "__main__":
    main()
