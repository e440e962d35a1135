# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# causes_any = []
# culprits = []
# watch = "--give-up-after 10"
# source = "https://github.com/ray-project/ray/pull/58229"
# ///
"""Three ranks train; the fourth is an evaluator that polls for checkpoints and works on them at its own pace, and ends last."""
import json
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("side-eval")
WIDTH = 32


def network():
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def sample(n, gen):
    x = torch.randn(n, WIDTH, generator=gen)
    return x, x[:, :8].argmax(1)


class Exchange:
    """Checkpoints go to a folder; an index file is replaced atomically."""

    def __init__(self, folder):
        self.folder, self.index = folder, folder / "index.json"
        folder.mkdir(parents=True, exist_ok=True)

    def publish(self, step, state, last):
        torch.save(state, self.folder / f"step{step}.pt")
        tmp = self.index.with_suffix(".tmp")
        tmp.write_text(json.dumps({"step": step, "last": last}))
        tmp.replace(self.index)

    def newest(self):
        return json.loads(self.index.read_text()) if self.index.exists() else None


def trainer(group, exchange, segments=2, seconds=9.0):
    torch.manual_seed(0)
    model = DDP(network(), process_group=group)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(dist.get_rank())
    step = 0
    for segment in range(segments):
        end = time.monotonic() + seconds
        while True:
            x, y = sample(256, gen)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step % 25 == 0:
                over = torch.tensor([float(time.monotonic() > end)])
                dist.all_reduce(over, op=dist.ReduceOp.MAX, group=group)
                if over.item():
                    break
        if dist.get_rank(group) == 0:
            exchange.publish(step, model.module.state_dict(), last=segment == segments - 1)
        log.info("segment %d ends at step %d, loss %.3f", segment, step, loss.item())


def evaluator(exchange, seconds=9.0):
    model, done = network(), -1
    while True:
        entry = exchange.newest()
        if entry is None or entry["step"] == done:
            time.sleep(0.3)
            continue
        done = entry["step"]
        model.load_state_dict(torch.load(exchange.folder / f"step{done}.pt"))
        gen = torch.Generator().manual_seed(99)
        hits = total = 0
        end = time.monotonic() + seconds
        with torch.no_grad():
            while time.monotonic() < end:
                x, y = sample(2048, gen)
                hits += int((model(x).argmax(1) == y).sum())
                total += len(x)
        log.info("step %d accuracy %.4f over %d samples", done, hits / total, total)
        if entry["last"]:
            return


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    exchange = Exchange(pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"side-{os.environ['TORCHELASTIC_RUN_ID'][:8]}")
    train_group = dist.new_group(list(range(world - 1)))
    if rank < world - 1:
        trainer(train_group, exchange)
    else:
        evaluator(exchange)
    log.info("rank is through")


if __name__ == "__main__":
    main()
