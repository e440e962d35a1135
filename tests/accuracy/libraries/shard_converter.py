# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [71, 75, 92, 111]
# source = "https://github.com/oumi-ai/oumi/pull/412"
# ///
"""Converts text shards to token files with an external converter, one process for each shard, before training."""
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("convert")

CONVERTER = textwrap.dedent(
    """
    import struct, sys
    src, dst = sys.argv[1:3]
    kept = 0
    with open(src, "rb") as f, open(dst, "wb") as out:
        for number, raw in enumerate(f):
            try:
                text = raw.decode("ascii").rstrip()
            except UnicodeDecodeError as err:
                print(f"{src}:{number}: line left out: {err}", file=sys.stderr)
                continue
            out.write(struct.pack(f"<{len(text)}B", *map(ord, text)))
            kept += 1
    print(kept)
    """
)


class ShardFolder:
    def __init__(self, root, shards):
        self.root = Path(root)
        self.shards = shards

    def text(self, i):
        return self.root / f"shard{i:02d}.txt"

    def tokens(self, i):
        return self.root / f"shard{i:02d}.bin"

    def create(self):
        self.root.mkdir(parents=True, exist_ok=True)
        for i in range(self.shards):
            word = "naïve café " if i == 4 else "plain words "
            encoding = "utf-8"
            lines = [f"{n} {word * (1 + n % 3)}\n" for n in range(900)]
            self.text(i).write_text("".join(lines), encoding=encoding)


class Converter:
    """Runs the converter and returns how many lines it kept."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, i):
        cmd = [sys.executable, "-S", "-c", CONVERTER, str(self.folder.text(i)), str(self.folder.tokens(i))]
        return subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def convert(self, i):
        proc = self.start(i)
        code = proc.wait()
        out, err = proc.stdout.read(), proc.stderr.read()
        if code != 0:
            raise RuntimeError(f"shard {i}: {err}")
        warnings = err.count("\n")
        if warnings:
            log.warning("shard %d: %d lines left out", i, warnings)
        return int(out)


class ByteModel:
    def __init__(self):
        self.counts = torch.ones(256)

    def observe(self, path):
        data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        counts = torch.bincount(data.long(), minlength=256).float()
        dist.all_reduce(counts)
        self.counts += counts

    @property
    def entropy(self):
        p = self.counts / self.counts.sum()
        return -(p * p.log2()).sum().item()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = ShardFolder(Path(tempfile.gettempdir()) / f"shards_{os.environ['MASTER_PORT']}", shards=3 * world)
    if rank == 0:
        folder.create()
    dist.barrier()
    converter, model = Converter(folder), ByteModel()
    for i in range(rank, folder.shards, world):
        kept = converter.convert(i)
        model.observe(folder.tokens(i))
        if rank == 0:
            log.info("shard %d: %d lines, %.3f bits", i, kept, model.entropy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
