# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/Synthefy/synthefy-nori/pull/86"
# ///
"""Three ranks train, the fourth evaluates; the trainers poll for its verdict, which takes long, and all ranks end at different times."""
import json
import logging
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("jury")
EVALUATION_SECONDS = 11.5


class Mailbox:
    """A few keys in the job's store."""

    def __init__(self, store):
        self.store = store

    def post(self, key, value):
        self.store.set(key, json.dumps(value))

    def poll(self, key, every=0.3):
        waits = 0
        while not self.store.check([key]):
            waits += 1
            time.sleep(every)
        return json.loads(self.store.get(key)), waits


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1))


class Trainer:
    def __init__(self, group, rank, size, box, root):
        self.group, self.rank, self.size, self.box, self.root = group, rank, size, box, root
        self.model, self.gen = make_model(), torch.Generator().manual_seed(rank)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02)

    def steps(self, n):
        for _ in range(n):
            x = torch.randn(32, 20, generator=self.gen)
            loss = nn.functional.mse_loss(self.model(x), x[:, :1] - x[:, 1:2])
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad, group=self.group)
                p.grad /= self.size
            self.opt.step()
        return loss.item()

    def run(self, rounds):
        for r in range(rounds):
            loss = self.steps(40)
            if self.rank == 0:
                torch.save(self.model.state_dict(), self.root / f"round{r}.pt")
                self.box.post(f"request/{r}", str(self.root / f"round{r}.pt"))
            verdict, waits = self.box.poll(f"verdict/{r}")
            log.info("round %d loss %.3f verdict %.3f after %d looks", r, loss, verdict["score"], waits)


class Evaluator:
    """Bootstraps the error of a checkpoint for a fixed time; nothing here communicates besides the mailbox."""

    def __init__(self, box, root):
        self.box, self.root = box, root

    def bootstrap(self, path):
        model = make_model()
        model.load_state_dict(torch.load(path))
        gen = torch.Generator().manual_seed(17)
        until, scores = time.monotonic() + EVALUATION_SECONDS, []
        with torch.no_grad():
            while time.monotonic() < until:
                x = torch.randn(2048, 20, generator=gen)
                scores.append(nn.functional.mse_loss(model(x), x[:, :1] - x[:, 1:2]))
        return {"score": float(torch.stack(scores).mean()), "samples": len(scores) * 2048}

    def run(self, rounds):
        history = []
        for r in range(rounds):
            path, _ = self.box.poll(f"request/{r}")
            history.append(self.bootstrap(path))
            self.box.post(f"verdict/{r}", history[-1])
        report = self.root / "report.json"
        for verdict in history:
            verdict["again"] = self.bootstrap(self.root / "round0.pt")["score"]
            report.write_text(json.dumps(history))
        log.info("report written, %d verdicts", len(history))


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "jury"
    root.mkdir(parents=True, exist_ok=True)
    trainers = dist.new_group(list(range(world - 1)))
    box = Mailbox(dist.distributed_c10d._get_default_store())
    if rank < world - 1:
        Trainer(trainers, rank, world - 1, box, root).run(rounds=2)
    else:
        Evaluator(box, root).run(rounds=2)
    log.info("rank %d is done", rank)


if __name__ == "__main__":
    main()
