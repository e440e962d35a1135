# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [0]
# culprits_any = [[1, 2, 3]]
# lines = [42, 46, 101, 102, 107, 113, 123, 124]
# branch = ["self.due()", "self.last_ckpt > self.interval", "written"]
# source = "https://github.com/speechbrain/speechbrain/issues/2401"
# ///
"""Speech-recognition style recipe: a Brain class with stages, intra-epoch checkpoints by wall clock and a small CTC model."""
import hashlib
import json
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("brain")


class Checkpointer:
    """Everybody writes their own recoverables; a checkpoint counts once all of them are there."""

    def __init__(self, root):
        self.root = root
        self.group = dist.new_group(backend="gloo")

    def save(self, name, state):
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rank{dist.get_rank()}.pt"
        torch.save(state, path)
        dist.barrier(self.group)
        if dist.get_rank() == 0:
            digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.pt"))}
            (folder / "CKPT.json").write_text(json.dumps(digests))
        dist.barrier(self.group)


class CTCModel(nn.Module):
    def __init__(self, feats=16, width=32, tokens=12):
        super().__init__()
        self.rnn = nn.GRU(feats, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, tokens)

    def forward(self, wavs):
        return self.out(self.rnn(wavs)[0]).log_softmax(-1)


def run_on_main(func, *args):
    """Runs func on the main process while the others wait for it."""
    value = func(*args) if dist.get_rank() == 0 else None
    dist.barrier()
    return value


class FeatureCache:
    """Normalisation statistics of the corpus, computed from the raw features and kept for later runs."""

    def __init__(self, path):
        self.path = path

    def write(self, seed, rounds):
        if self.path.exists():
            return False
        gen = torch.Generator().manual_seed(seed)
        total, square = torch.zeros(16), torch.zeros(16)
        for _ in range(rounds):
            feats = torch.randn(20000, 16, generator=gen) * 2 + 1
            spectrum = torch.fft.rfft(feats, dim=0).abs()
            total += spectrum.mean(0)
            square += spectrum.pow(2).mean(0)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"mean": total / rounds, "std": (square / rounds).sqrt()}, self.path)
        return True

    def read(self):
        return torch.load(self.path)


class Brain:
    def __init__(self, root, interval=5.0):
        torch.manual_seed(0)
        self.model = DDP(CTCModel())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.checkpointer = Checkpointer(root / "save")
        self.interval = interval
        self.last_ckpt = time.monotonic()
        self.stats = None

    def prepare(self, cache):
        written = run_on_main(cache.write, 8, 150)
        if written:
            self.last_ckpt = time.monotonic()
        self.stats = cache.read()

    def due(self):
        return time.monotonic() - self.last_ckpt > self.interval

    def fit_batch(self, wavs, tokens):
        logp = self.model((wavs - self.stats["mean"].mean()) / self.stats["std"].mean())
        n, t = logp.shape[:2]
        loss = F.ctc_loss(logp.transpose(0, 1), tokens, torch.full((n,), t), torch.full((n,), tokens.shape[1]))
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def fit(self, epochs, steps):
        gen = torch.Generator().manual_seed(dist.get_rank())
        for epoch in range(epochs):
            for step in range(steps):
                loss = self.fit_batch(torch.randn(4, 30, 16, generator=gen), torch.randint(1, 12, (4, 6), generator=gen))
                if self.due():
                    self.checkpointer.save(f"intra-{epoch}-{step}", self.model.module.state_dict())
                    self.last_ckpt = time.monotonic()
                if step % 50 == 0:
                    log.info("epoch %d step %d loss %.3f", epoch, step, loss)
            self.checkpointer.save(f"epoch-{epoch}", self.model.module.state_dict())


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"asr-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    brain = Brain(root)
    brain.prepare(FeatureCache(root / "stats.pt"))
    brain.fit(epochs=3, steps=400)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
