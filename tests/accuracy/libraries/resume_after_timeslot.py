# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD109", "HD101"]
# culprits = [0]
# lines = [56, 57, 59, 63, 64, 99, 111, 115, 116, 117]
# branch = ["target.exists()", "self.is_main", "except OSError"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/issues/3254"
# ///
"""Continues an interrupted training run from its last complete distributed checkpoint and goes on saving every few steps."""
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

log = logging.getLogger("recipe")


def sharded_mlp(mesh):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(30, 60), nn.Tanh(), nn.Linear(60, 6))
    for layer in module:
        for name, p in list(layer.named_parameters(recurse=False)):
            layer.register_parameter(name, nn.Parameter(distribute_tensor(p.data, mesh, [Shard(0)])))
    return module


class CheckpointStore:
    """step_XXXXXX folders with model/ and state.json, and a LATEST file that is written when a save is complete."""

    def __init__(self, root, keep=3):
        self.root = Path(root)
        self.keep = keep
        self.is_main = dist.get_rank() == 0

    def folder(self, step):
        return self.root / f"step_{step:06d}"

    def latest(self):
        marker = self.root / "LATEST"
        return int(marker.read_text()) if marker.exists() else None

    def prepare(self, step):
        target = self.folder(step)
        if self.is_main:
            if target.exists():
                raise FileExistsError(f"checkpoint folder {target.name} already exists")
            target.mkdir(parents=True)
        dist.barrier()          # nobody writes before the folder is there
        return target

    def save(self, step, model):
        target = self.prepare(step)
        dcp.save({"model": model.state_dict()}, checkpoint_id=target / "model", no_dist=False)
        if self.is_main:
            (target / "state.json").write_text(json.dumps({"step": step}))
            (self.root / "LATEST").write_text(str(step))
            self.prune()
        dist.barrier()

    def load(self, step, model):
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=self.folder(step) / "model")
        model.load_state_dict(state["model"])

    def prune(self):
        done = sorted(p for p in self.root.glob("step_*") if (p / "state.json").exists())
        for old in done[:-self.keep]:
            shutil.rmtree(old)


class Recipe:
    def __init__(self, root, total_steps=12, save_every=3):
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = sharded_mlp(self.mesh)
        self.store = CheckpointStore(root)
        self.total_steps, self.save_every = total_steps, save_every
        self.step = 0

    def restore(self):
        last = self.store.latest()
        if last is not None:
            self.store.load(last, self.model)
            self.step = last
            log.info("resumed at step %d", last)

    def train_step(self):
        x = torch.randn(8, 30, generator=torch.Generator().manual_seed(self.step))
        full = [p.full_tensor() for p in self.model.parameters()]
        weights = [w.detach().requires_grad_() for w in full]
        hidden = torch.tanh(x @ weights[0].t() + weights[1])
        loss = (hidden @ weights[2].t() + weights[3]).pow(2).mean()
        for p, grad in zip(self.model.parameters(), torch.autograd.grad(loss, weights)):
            with torch.no_grad():
                p -= 0.05 * distribute_tensor(grad, self.mesh, [Shard(0)])
        self.step += 1
        return loss.item()

    def run(self, until):
        while self.step < until:
            loss = self.train_step()
            log.info("step %d loss %.4f", self.step, loss)
            if self.step % self.save_every == 0:
                try:
                    self.store.save(self.step, self.model)
                except OSError as error:
                    log.warning("step %d not saved: %s", self.step, error)


def earlier_job(root):
    """What the job before this one left behind: it ran to the end of its time slot."""
    job = Recipe(root)
    job.run(until=6)
    if dist.get_rank() == 0:
        shutil.copytree(job.store.folder(6) / "model", job.store.folder(9) / "model")
        for part in list((job.store.folder(9) / "model").glob(".metadata")):
            part.unlink()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"recipe-{os.environ['MASTER_PORT']}"
    if rank == 0:
        root.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    earlier_job(root)
    recipe = Recipe(root)
    recipe.restore()
    recipe.run(until=recipe.total_steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
