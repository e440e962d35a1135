# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD112", "HD106", "HD107", "HD101"]
# culprits = [2]
# lines = [38, 47, 51, 55]
# source = "ComputationalRadiationPhysics/picongpu#3642 (collectives in the handling of a signal); Lightning/SLURM preemption"
# ///
"""Training on preemptible nodes: the batch system sends SIGUSR1 before it takes a node away."""
import argparse
import logging
import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class BatchSystem:
    """What the node's agent does: it warns the processes of a node which will be reclaimed."""

    def __init__(self, node, reclaimed, after):
        self.node, self.reclaimed, self.after = node, reclaimed, after

    def watch(self):
        threading.Thread(target=self.warn, daemon=True, name="agent").start()

    def warn(self):
        time.sleep(self.after)
        if self.node in self.reclaimed:
            os.kill(os.getpid(), signal.SIGUSR1)


class Drain:
    """Lets all processes know that one of them has been warned."""

    def __init__(self):
        self.control = dist.new_group(backend="gloo")
        self.requested = False
        signal.signal(signal.SIGUSR1, self.on_notice)

    def on_notice(self, number, frame):
        log.info("notice %d received", number)
        self.requested = self.agree(True)

    def agree(self, mine):
        votes = torch.tensor([float(mine)])
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self.control)
        return bool(votes.item())


class Trainer:
    def __init__(self, args):
        torch.manual_seed(0)
        self.args = args
        self.model = DDP(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.drain = Drain()
        self.folder = tempfile.mkdtemp(prefix="drain-")

    def step(self):
        x = torch.randn(16, 16)
        loss = self.model(x).logsumexp(dim=1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.02)
        return loss.item()

    def save(self, step):
        if dist.get_rank() == 0:
            torch.save({"step": step, "model": self.model.module.state_dict()}, os.path.join(self.folder, "last.pt"))

    def fit(self):
        for step in range(self.args.steps):
            loss = self.step()
            if step % self.args.save_every == 0:
                self.save(step)
            if self.drain.requested:
                self.save(step)
                return step
        log.info("loss %.3f", loss)
        return self.args.steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer(args)
    BatchSystem(dist.get_rank() // args.ranks_per_node, reclaimed={2}, after=2.0).watch()
    log.info("stopped after %d steps", trainer.fit())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
