# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [31, 32, 64, 65, 66, 68, 96]
# source = "https://github.com/Red-Hat-AI-Innovation-Team/mini_trainer/pull/79"
# ///
"""After every epoch each rank scores its slice of the validation set with the team's stand-alone scorer program, then the scores are averaged."""
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("scoring")

SCORER = '''
import json, sys
good = bad = 0
for number, line in enumerate(open(sys.argv[1])):
    record = json.loads(line)
    if abs(record["margin"]) > 1.0:
        print(f"warning: {sys.argv[1]}:{number}: margin {record['margin']:.4f} outside of [-1, 1], clipped", file=sys.stderr)
        bad += 1
    good += record["margin"] > 0
print(json.dumps({"accuracy": good / (number + 1), "clipped": bad}))
'''


class ValidationSlice:
    SOURCES = ("wiki", "forum", "wiki")

    def __init__(self, rank: int, folder: Path, count: int = 4000):
        self.rank, self.folder, self.count = rank, folder, count
        self.source = self.SOURCES[rank % len(self.SOURCES)]
        self.rng = random.Random(rank)

    def spread(self) -> float:
        return {"wiki": 0.3, "forum": 2.5}[self.source]

    def write(self, epoch: int) -> Path:
        path = self.folder / f"val_{self.source}_{self.rank}_{epoch}.jsonl"
        with path.open("w") as out:
            for _ in range(self.count):
                out.write(json.dumps({"margin": self.rng.gauss(0.05, self.spread())}) + "\n")
        return path


class ExternalScorer:
    def __init__(self, folder: Path):
        self.script = folder / f"scorer_{os.getpid()}.py"
        self.script.write_text(SCORER)

    def score(self, path: Path) -> dict:
        worker = subprocess.Popen(
            [sys.executable, str(self.script), str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        status = worker.wait()
        if status != 0:
            raise RuntimeError(f"scorer failed with {status}: {worker.stderr.read()[-400:]}")
        for complaint in worker.stderr.read().splitlines()[:3]:
            log.warning("%s", complaint)
        return json.loads(worker.stdout.read())


def train_epoch(model, rate: float, steps: int):
    for _ in range(steps):
        loss = model(torch.randn(16, 32)).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients):
            dist.all_reduce(gradient)
            parameter.data.sub_(gradient, alpha=rate)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "scoring"
    folder.mkdir(exist_ok=True, parents=True)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    validation = ValidationSlice(rank, folder)
    scorer = ExternalScorer(folder)
    for epoch in range(3):
        train_epoch(model, 0.003, 20)
        report = scorer.score(validation.write(epoch))
        accuracy = torch.tensor([report["accuracy"]])
        dist.all_reduce(accuracy)
        log.info("epoch %d accuracy %.3f", epoch, accuracy.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
