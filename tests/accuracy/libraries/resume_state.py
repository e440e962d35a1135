# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# culprits_any = [[1], [0, 2]]
# lines = [57, 69, 77, 81, 98, 106]
# branch = ["marker.is_file()", "self._has_progress(folder)", "self._free_kb(self.root) > 0"]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/49"
# ///
"""Resume helper around Accelerate: weights per rank, one shared progress record."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list

log = logging.getLogger("resume")


@dataclass
class RunConfig:
    run: str = os.environ.get("TORCHELASTIC_RUN_ID", "local")
    steps: int = 12
    save_every: int = 4
    width: int = 16
    scratch: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    def node_dir(self, rank: int) -> Path:
        return self.scratch / f"ckpt-{self.run}" / f"node{rank}"


class CheckpointManager:
    PROGRESS = "train_state.json"

    def __init__(self, acc: Accelerator, cfg: RunConfig):
        self.acc, self.cfg = acc, cfg
        self.root = cfg.node_dir(acc.process_index)
        self.root.mkdir(parents=True, exist_ok=True)
        self.quota = int(os.environ.get("NODE_QUOTA_KB", "0")) or [64, 5, 64][acc.process_index % 3]

    def _free_kb(self, folder: Path) -> int:
        used = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        return self.quota - used // 1024

    def save(self, step: int, model) -> None:
        folder = self.root / f"step_{step:05d}"
        folder.mkdir(exist_ok=True)
        torch.save(self.acc.unwrap_model(model).state_dict(), folder / "weights.pt")
        if self._free_kb(self.root) > 0:
            (folder / self.PROGRESS).write_text(json.dumps({"step": step, "seen": step * 8}))
        else:
            log.warning("rank %d: little space left, kept only the weights", self.acc.process_index)
        self.acc.wait_for_everyone()

    def latest(self):
        found = sorted(self.root.glob("step_*"))
        return found[-1] if found else None

    def _has_progress(self, folder: Path) -> bool:
        marker = folder / self.PROGRESS
        return marker.is_file()

    def load(self, model) -> dict:
        progress = {"step": 0, "seen": 0}
        folder = self.latest()
        if folder is None:
            return progress
        self.acc.unwrap_model(model).load_state_dict(torch.load(folder / "weights.pt"))
        if self._has_progress(folder):
            box = [None]
            if self.acc.is_main_process:
                box[0] = json.loads((folder / self.PROGRESS).read_text())
            broadcast_object_list(box)
            progress = box[0]
        return progress


class Session:
    def __init__(self, acc: Accelerator, cfg: RunConfig):
        self.acc, self.cfg = acc, cfg
        net = torch.nn.Sequential(torch.nn.Linear(cfg.width, cfg.width), torch.nn.Tanh(), torch.nn.Linear(cfg.width, 1))
        self.model, self.opt = acc.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05))
        self.ckpt = CheckpointManager(acc, cfg)
        self.step = 0

    def run_until(self, last: int) -> None:
        while self.step < last:
            x = torch.randn(8, self.cfg.width)
            loss = self.model(x).square().mean()
            self.acc.backward(loss)
            self.opt.step()
            self.opt.zero_grad()
            self.step += 1
            if self.step % self.cfg.save_every == 0:
                self.ckpt.save(self.step, self.model)

    def restore(self) -> None:
        self.step = self.ckpt.load(self.model)["step"]
        log.info("rank %d continues at step %d", self.acc.process_index, self.step)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(hours=3))])
    cfg = RunConfig()
    first = Session(acc, cfg)
    first.run_until(cfg.steps - 2)
    second = Session(acc, cfg)
    second.restore()
    second.run_until(cfg.steps)
    log.info("rank %d done", acc.process_index)


if __name__ == "__main__":
    main()
