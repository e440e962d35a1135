# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits_any = [[1]]
# lines = [47, 57, 78, 93, 104]
# branch = ["self.clock.expired", "time.monotonic() - self.started", "marker.exists()"]
# source = "https://github.com/speechbrain/speechbrain/issues/1939"
# ///
"""Fine-tuning under a wall-time budget (short Slurm slots), the budget counted on each rank from the end of its set-up.
One rank's shard was verified by an earlier job, so its clock started earlier and its budget ends steps before the others'."""
import hashlib
import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("finetune")


@dataclass
class Args:
    workdir: Path = Path("work")
    budget_s: float = 5.5
    max_steps: int = 10_000
    hidden: int = 16
    lr: float = 1e-3
    log_every: int = 5


class WallClock:
    def __init__(self, budget: float):
        self.budget = budget
        self.started = time.monotonic()

    @property
    def elapsed(self):
        return time.monotonic() - self.started

    @property
    def expired(self):
        return time.monotonic() - self.started > self.budget


class Shard:
    def __init__(self, args: Args, rank: int):
        self.path = args.workdir / f"part-{rank:05d}.bin"
        self.rank = rank

    def ensure_verified(self):
        marker = self.path.with_suffix(".verified")
        if marker.exists():
            return
        blob, digest = self.path.read_bytes(), hashlib.sha256()
        for start in range(0, len(blob), 4096):
            digest.update(blob[start:start + 4096])
            time.sleep(0.05)
        marker.write_text(digest.hexdigest())

    def batches(self, hidden):
        g = torch.Generator().manual_seed(self.rank)
        while True:
            time.sleep(0.15)
            yield torch.randn(8, hidden, generator=g)


class FineTuner:
    def __init__(self, args: Args, shard: Shard):
        self.args, self.shard = args, shard
        torch.manual_seed(0)
        self.model = nn.Linear(args.hidden, args.hidden)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.clock = WallClock(args.budget_s)
        self.step = 0

    def train_step(self, x):
        loss = (self.model(x) - x.roll(1, -1)).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()
        self.opt.step()
        return loss.detach()

    def fit(self):
        stream = self.shard.batches(self.args.hidden)
        while self.step < self.args.max_steps and not self.clock.expired:
            loss = self.train_step(next(stream))
            self.step += 1
            if self.step % self.args.log_every == 0:
                log.info("[%d] step %d loss %.4f, %.1f s", dist.get_rank(), self.step, loss, self.clock.elapsed)
        return self.step

    def save(self):
        state = {k: v.clone() for k, v in self.model.state_dict().items()}
        if dist.get_rank() == 0:
            torch.save({"model": state, "step": self.step}, self.args.workdir / "last.pt")
        dist.barrier()


def leftovers(args: Args, world: int):
    """The working folder as the previous (cancelled) job left it."""
    args.workdir.mkdir(exist_ok=True)
    for r in range(world):
        (args.workdir / f"part-{r:05d}.bin").write_bytes(bytes([r]) * 4096 * 70)
    (args.workdir / "part-00001.verified").write_text("d1")


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    args, rank = Args(), dist.get_rank()
    if rank == 0:
        leftovers(args, dist.get_world_size())
    dist.barrier()
    shard = Shard(args, rank)
    shard.ensure_verified()
    tuner = FineTuner(args, shard)
    tuner.fit()
    tuner.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
