# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD305", "HD401"]
# culprits = [3]
# lines = [44, 47, 53, 63, 76, 78, 80, 82, 84, 100]
# branch = ["not names"]
# source = "NVIDIA-NeMo/Automodel#3254 (a rank ends at a check, the others wait), a commit by store keys as in torch.distributed.checkpoint"
# ///
"""Exports embeddings in shards; rank 0 writes the manifest once all parts have been reported."""
import argparse
import datetime
import json
import logging
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("export")


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width))

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=1)


class Board:
    """Progress of the parts, kept in a key-value store of the job."""

    def __init__(self, rank, world, port):
        wait = datetime.timedelta(hours=2)
        self.rank, self.world = rank, world
        self.store = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, is_master=rank == 0, timeout=wait)

    def report(self, info):
        self.store.set(f"part/{self.rank}", json.dumps(info))

    def parts(self):
        return [json.loads(self.store.get(f"part/{rank}")) for rank in range(self.world)]

    def publish(self, manifest):
        self.store.set("manifest", json.dumps(manifest))

    def manifest(self):
        self.store.wait(["manifest"])
        return json.loads(self.store.get("manifest"))


class Export:
    def __init__(self, folder, board, files, rows):
        self.folder, self.board, self.files, self.rows = folder, board, files, rows
        self.encoder = Encoder().eval()

    def mine(self):
        per_rank = -(-len(self.files) // self.board.world)
        return self.files[self.board.rank * per_rank:][:per_rank]

    @torch.no_grad()
    def encode(self, name):
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        vectors = self.encoder(torch.randn(self.rows, 8, generator=generator))
        path = self.folder / f"{name}.pt"
        torch.save(vectors, path)
        return path.name, len(vectors)

    def run(self):
        names = self.mine()
        if not names:
            log.info("no files")
            return None
        written = dict(self.encode(name) for name in names)
        self.board.report(written)
        if self.board.rank == 0:
            merged = {k: v for part in self.board.parts() for k, v in part.items()}
            self.board.publish(merged)
        return self.board.manifest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=9)
    parser.add_argument("--rows", type=int, default=500)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    folder = pathlib.Path(tempfile.gettempdir()) / f"export-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    board = Board(rank, world, 23000 + int(os.environ["MASTER_PORT"]) % 8000)
    names = [f"users-{number:03d}" for number in range(args.files)]
    manifest = Export(folder, board, names, args.rows).run()
    if manifest is not None:
        log.info("%d files, %d rows", len(manifest), sum(manifest.values()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
