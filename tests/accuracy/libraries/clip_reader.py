# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD507", "HD509"]
# culprits = [2]
# lines = [67, 71, 72, 81, 105, 124]
# source = "https://github.com/Zulko/moviepy/issues/576"
# ///
"""Train a small frame encoder on clips that an external decoder streams as raw bytes."""
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("clips")

DECODER = textwrap.dedent("""
    import sys
    side, frames, broken = map(int, sys.argv[1:4])
    pts = 0
    for n in range(frames):
        pts += 40
        if broken and n > 3:
            for k in range(260):
                sys.stderr.write(f"[rawvideo @ 0x5bf484] non monotonically increasing dts to muxer: {pts} >= {pts - k}\\n")
            sys.stderr.flush()
        sys.stdout.buffer.write(bytes([n % 251]) * (side * side * 3))
    sys.stdout.flush()
""")


@dataclass(frozen=True)
class Clip:
    name: str
    frames: int
    remuxed: bool = False


@dataclass
class Config:
    side: int = 24
    lr: float = 1e-2
    epochs: int = 3
    catalogue: tuple = (
        Clip("walk_01", 12), Clip("walk_02", 12), Clip("walk_03", 12),
        Clip("bike_01", 12), Clip("bike_02", 12), Clip("bike_03", 12),
        Clip("swim_01", 12), Clip("swim_02", 12), Clip("swim_03", 12, remuxed=True),
    )


class FrameReader:
    """Iterates over the frames of a clip, as arrays."""

    def __init__(self, clip: Clip, cfg: Config, script: str):
        self.clip, self.cfg = clip, cfg
        cmd = [sys.executable, script, str(cfg.side), str(clip.frames), str(int(clip.remuxed))]
        self.proc = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=10 ** 6)

    def _read_exactly(self, need: int) -> bytes:
        buf = b""
        while len(buf) < need:
            piece = self.proc.stdout.read(need - len(buf))
            if not piece:
                break
            buf += piece
        return buf

    def __iter__(self):
        need = self.cfg.side * self.cfg.side * 3
        for _ in range(self.clip.frames):
            raw = self._read_exactly(need)
            if len(raw) < need:
                log.warning("%s ended early", self.clip.name)
                return
            yield np.frombuffer(raw, dtype=np.uint8).reshape(self.cfg.side, self.cfg.side, 3)

    def close(self) -> None:
        self.proc.stdout.close()
        self.proc.stderr.close()
        self.proc.wait()


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten())
        self.head = torch.nn.LazyLinear(1)

    def forward(self, x):
        return self.head(self.body(x))


def load_clip(clip: Clip, cfg: Config, script: str) -> torch.Tensor:
    reader = FrameReader(clip, cfg, script)
    frames = [torch.from_numpy(f.copy()).permute(2, 0, 1).float() / 255 for f in reader]
    reader.close()
    return torch.stack(frames)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = Config()
    fd, script = tempfile.mkstemp(prefix=f"decoder-{os.environ['MASTER_PORT']}-", suffix=".py")
    with os.fdopen(fd, "w") as fh:
        fh.write(DECODER)
    net = Encoder()
    net(torch.zeros(1, 3, cfg.side, cfg.side))
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        for clip in cfg.catalogue[rank::world]:
            frames = load_clip(clip, cfg, script)
            loss = model(frames).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.info("rank %d epoch %d %s %.4f", rank, epoch, clip.name, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
