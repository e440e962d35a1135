# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [0]
# lines = [66, 71, 85, 86, 95, 97, 98]
# branch = ["self.guard.requested", "self.batch_leader"]
# source = "https://github.com/kyutai-labs/pocket-tts/pull/277"
# ///
"""Speech codec pre-training with a checkpoint on the scheduler's notice of preemption."""
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist


class PreemptionGuard:
    """Turns SIGUSR1 and SIGTERM into a flag that the loop reads between steps."""

    def __init__(self, signals=(signal.SIGUSR1,)):
        self.requested = False
        self.received = None
        for s in signals:
            signal.signal(s, self._on_signal)

    def _on_signal(self, signum, frame):
        self.received = signal.Signals(signum).name
        self.requested = True


class BatchAgent:
    """Stands for the node agent of the scheduler: it warns the batch step's leader, as `--signal=B:USR1@n` does."""

    NOTICE = "import os,signal,sys,time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), signal.SIGUSR1)"

    def __init__(self, seconds):
        self.seconds = seconds

    @property
    def batch_leader(self):
        return int(os.environ["LOCAL_RANK"]) == 0

    def watch(self):
        if self.batch_leader:
            subprocess.Popen([sys.executable, "-S", "-c", self.NOTICE, str(os.getpid()), str(self.seconds)])


class CodecTrainer:
    def __init__(self, root, guard, max_steps=5000):
        self.root = Path(root)
        self.guard = guard
        self.max_steps = max_steps
        self.codebook = torch.nn.Parameter(torch.randn(32, 8))
        self.usage = torch.zeros(32)

    @contextmanager
    def collective_write(self):
        dist.barrier()
        yield self.root / f"rank{dist.get_rank()}.pt"
        dist.barrier()

    def save(self, step):
        with self.collective_write() as path:
            torch.save({"codebook": self.codebook.detach(), "step": step}, path)
        print(f"saved step {step} on {self.guard.received}", flush=True)

    def frames(self, step):
        gen = torch.Generator().manual_seed(step * 31 + dist.get_rank())
        return torch.randn(64, 8, generator=gen)

    def train_step(self, step):
        x = self.frames(step)
        code = torch.cdist(x, self.codebook).argmin(dim=1)
        loss = (x - self.codebook[code]).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, self.codebook)
        hits = torch.bincount(code, minlength=32).float()
        dist.all_reduce(grad)
        dist.all_reduce(hits)
        self.usage.mul_(0.9).add_(hits, alpha=0.1)
        self.codebook.data.sub_(grad, alpha=0.5 / dist.get_world_size())
        time.sleep(0.02)
        return loss.item()

    def fit(self):
        step, loss = 0, None
        while step < self.max_steps:
            loss = self.train_step(step)
            step += 1
            if self.guard.requested:
                self.save(step)
                break
        return step, loss


def main():
    guard = PreemptionGuard()
    dist.init_process_group("gloo")
    root = Path(tempfile.gettempdir()) / f"codec_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    dist.barrier()
    BatchAgent(seconds=5).watch()
    step, loss = CodecTrainer(root, guard).fit()
    print(f"left at step {step}, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
