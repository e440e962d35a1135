# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD507", "HD509"]
# culprits = [0]
# lines = [36, 38, 43, 44, 103]
# source = "Zulko/moviepy#576, BrokenSource/ShaderFlow#13"
# ///
"""Trains a world model; rank 0 turns predicted frames into a clip with an encoder process."""
import argparse
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENCODER = """
import sys, zlib
size = int(sys.argv[1])
total = 0
while True:
    frame = sys.stdin.buffer.read(size)
    if not frame:
        break
    packed = zlib.compress(frame)
    total += len(packed)
    print("frame of", len(frame), "bytes packed to", len(packed), "total", total, "quality", 0.95, "." * 60, flush=True)
"""


class Clip:
    def __init__(self, frame_bytes):
        self.frame_bytes, self.frames = frame_bytes, 0
        self.encoder = subprocess.Popen(
            [sys.executable, "-c", ENCODER, str(frame_bytes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )

    def add(self, frame):
        data = frame.clamp(0, 255).to(torch.uint8).numpy().tobytes()
        self.encoder.stdin.write(data)
        self.encoder.stdin.flush()
        self.frames += 1

    def close(self):
        self.encoder.stdin.close()
        self.encoder.wait()
        return self.encoder.stdout.read().count(b"\n")


class NoClip:
    frames = 0

    def add(self, frame):
        pass

    def close(self):
        return 0


class WorldModel(nn.Module):
    def __init__(self, side=32, width=48):
        super().__init__()
        self.side = side
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(side * side, width), nn.Tanh())
        self.decode = nn.Linear(width, side * side)

    def forward(self, frames):
        return self.decode(self.encode(frames)).view(-1, self.side, self.side)


def moving_square(side, length, seed):
    frames = torch.zeros(length, side, side)
    generator = torch.Generator().manual_seed(seed)
    row, column = torch.randint(0, side - 6, (2,), generator=generator).tolist()
    for t in range(length):
        shift = (column + t) % (side - 6)
        frames[t, row:row + 6, shift:shift + 6] = 1
    return frames


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--side", type=int, default=32)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(WorldModel(args.side))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clip = Clip(args.side * args.side) if rank == 0 else NoClip()
    for step in range(args.steps):
        frames = moving_square(args.side, 9, seed=step * 2 + rank)
        predicted = model(frames[:-1])
        loss = nn.functional.mse_loss(predicted, frames[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for frame in predicted.detach()[:4]:
            clip.add(frame * 255)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.5f} frames {clip.frames}", flush=True)
    packed = clip.close()
    if rank == 0:
        print(f"{packed} frames packed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
