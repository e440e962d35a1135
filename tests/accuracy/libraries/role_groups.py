# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = ["yaml"]
# outcome = "hang"
# causes_any = ["HD303", "HD106"]
# culprits = [4]
# lines = [71, 72, 74, 75, 84, 92]
# branch = ["section.get(", "settings["]
# source = "https://github.com/facebookresearch/param/pull/183"
# ///
"""Learners, rollout workers and an evaluator in one job; each role's settings come from layered YAML and say which process groups the job has."""
import logging
import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import yaml

log = logging.getLogger("roles")

BASE = """
model: {width: 24, depth: 3}
iterations: 6
groups:
  learners: {ranks: [0, 1], enabled: true}
  weights: {ranks: [0, 2, 3, 4], enabled: true}
  reference: {ranks: [1, 2, 3], enabled: true}
  report: {ranks: [0, 1, 4], enabled: true}
"""

OVERLAYS = {
    "learner": "lr: 0.01\n",
    "rollout": "temperature: 0.9\nmodel: {dropout: 0.0}\n",
    "evaluator": "episodes: 4\nmodel: {dropout: 0.0}\ngroups:\n  reference: {enabled: false}\n",
}


def merge(base, extra):
    out = dict(base)
    for key, value in (extra or {}).items():
        out[key] = merge(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


class Settings:
    """Reads conf/base.yaml and conf/<role>.yaml below the job's folder."""

    def __init__(self, folder, role):
        base = yaml.safe_load((folder / "base.yaml").read_text())
        overlay = folder / f"{role}.yaml"
        self.role = role
        self.tree = merge(base, yaml.safe_load(overlay.read_text()))

    @classmethod
    def write_defaults(cls, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "base.yaml").write_text(BASE)
        for role, text in OVERLAYS.items():
            (folder / f"{role}.yaml").write_text(text)

    def __getitem__(self, key):
        return self.tree[key]


class Topology:
    def __init__(self, settings):
        self.handles = {}
        for name, section in settings["groups"].items():
            if not section.get("enabled", True):
                log.info("group %s is off", name)
                continue
            self.handles[name] = dist.new_group(section["ranks"], timeout=timedelta(minutes=20))

    def __getitem__(self, name):
        return self.handles[name]


class Worker:
    def __init__(self, settings):
        self.settings, self.rank = settings, dist.get_rank()
        self.topology = Topology(settings)
        torch.manual_seed(0)
        width = settings["model"]["width"]
        layers = [torch.nn.Linear(width, width) for _ in range(settings["model"]["depth"])]
        self.policy = torch.nn.Sequential(*layers)

    def publish(self):
        for p in self.policy.parameters():
            dist.broadcast(p.data, src=0, group=self.topology["weights"])

    def reference_scores(self):
        scores = torch.zeros(3)
        dist.all_reduce(scores, group=self.topology["reference"])
        return scores

    def learn(self):
        x = torch.randn(8, self.settings["model"]["width"])
        loss = self.policy(x).pow(2).mean()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad, group=self.topology["learners"])
            p.data.add_(p.grad, alpha=-self.settings["lr"])
            p.grad = None
        return loss.item()

    def run(self):
        for _ in range(self.settings["iterations"]):
            if self.settings.role == "learner":
                log.info("loss %.4f", self.learn())
            if self.rank in (0, 2, 3, 4):
                self.publish()
            if self.rank in (1, 2, 3):
                self.reference_scores()
            if self.rank in (0, 1, 4):
                dist.barrier(group=self.topology["report"])


def main():
    rank = int(os.environ["RANK"])
    role = "learner" if rank < 2 else "evaluator" if rank == 4 else "rollout"
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {role}{rank} %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "conf"
    if rank == 0:
        Settings.write_defaults(folder)
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    dist.barrier()
    Worker(Settings(folder, role)).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
