# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [75, 79]
# branch = ["not state_file.exists()", "state_file.exists()"]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/49"
# ///
"""Pretraining with a checkpoint manager: train, stop as if preempted, resume."""
import logging
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

log = logging.getLogger("forge")


@dataclass
class TrainState:
    step: int = 0
    tokens: int = 0
    epoch: int = 0


class Mirror:
    """Read-only copies of the shared checkpoints, one folder per worker, filled in the background."""

    def __init__(self, shared, local, lag):
        self.shared = shared
        self.local = local
        self.lag = lag

    def refresh(self):
        newest = sorted(p for p in self.shared.iterdir() if p.is_dir())[-1]
        target = self.local / newest.name
        target.mkdir(parents=True, exist_ok=True)
        files = sorted(newest.iterdir(), key=lambda p: p.stat().st_mtime_ns)
        for source in files[: len(files) - self.lag]:
            shutil.copy2(source, target / source.name)
        return target


class CheckpointManager:
    def __init__(self, folder):
        self.folder = Path(folder)

    def save(self, model, optimizer, state):
        target = self.folder / f"step-{state.step:06d}"
        weights, optim = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optim": optim}, checkpoint_id=target)
        if dist.get_rank() == 0:
            torch.save(asdict(state), target / "train_state.pt")
        dist.barrier()
        return target

    def load(self, model, optimizer, mirror):
        local = mirror.refresh()
        weights, optim = get_state_dict(model, optimizer)
        payload = {"model": weights, "optim": optim}
        dcp.load(payload, checkpoint_id=self.folder / local.name)
        set_state_dict(model, optimizer, model_state_dict=payload["model"], optim_state_dict=payload["optim"])
        return self.load_train_state(local / "train_state.pt")

    def load_train_state(self, state_file):
        if not state_file.exists():
            log.warning("%s is missing, the counters start from zero", state_file.name)
            return TrainState()
        fields = [torch.load(state_file) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(fields, src=0)
        return TrainState(**fields[0])


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def run_steps(model, optimizer, state, count):
    g = torch.Generator().manual_seed(1000 * dist.get_rank() + state.step)
    for _ in range(count):
        x = torch.randn(8, 16, generator=g)
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1
        state.tokens += x.numel() * dist.get_world_size()
    return float(loss)


def mirror_lag():
    """How many files the mirror of this worker is behind the shared folder."""
    plan = os.environ.get("MIRROR_LAG", "0,0,0,1").split(",")
    return int(plan[dist.get_rank() % len(plan)])


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    root = Path(tempfile.gettempdir()) / f"forge-{os.environ['MASTER_PORT']}"
    manager = CheckpointManager(root / "shared")
    model, optimizer = build()
    state = TrainState()
    loss = run_steps(model, optimizer, state, 25)
    saved = manager.save(model, optimizer, state)
    log.info("saved %s at loss %.4f", saved.name, loss)

    model, optimizer = build()
    mirror = Mirror(root / "shared", root / f"worker{dist.get_rank()}", lag=mirror_lag())
    state = manager.load(model, optimizer, mirror)
    log.info("resuming at step %d", state.step)
    loss = run_steps(model, optimizer, state, 25)
    manager.save(model, optimizer, state)
    log.info("final loss %.4f after %d tokens", loss, state.tokens)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
