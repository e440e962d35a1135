"""A pipeline of four stages in four replicas, one micro-batch after the other.

Sixteen ranks form a mesh. Each stage books the samples of a micro-batch when it computes it, and takes no more than the
step's quota. Rank 6 (stage 2 of replica 1) has less memory than its sisters: in the eighth step a long micro-batch is
not kept, and is computed a second time for backward, and booked a second time. For the last micro-batch the
ledger has no room. Rank 6 skips its receive and its send, averages its gradients and waits in the totals of the
step; stage 1 sends to it, stage 3 receives from it, and the rest waits for these.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 16"
# outcome = "hang"
# cause = "HD202"
# culprits = [6]
# file = "totals.py"
# lines = [32]
# code = ["dist.all_reduce(row)"]
# branch = ["not self.ledger.admits(slot.micro)"]
# source = "constructed"
# watch = "--stall-after 8"
# timeout = 180
# ///

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from archive.shards import Archive
from judge.quality import judge
from mesh.groups import Mesh
from monitor.board import Board
from plan.config import Config
from plan.reader import read_config
from schedule.training import Training


def run(config: Config) -> int:
    mesh = Mesh.build(config.stages, config.replicas)
    board = Board(mesh, config)
    training = Training(config, mesh, board)
    archive = Archive(Path(config.folder), mesh)
    for step in range(archive.resume(training.stage), config.steps):
        training.step(step)
        if config.archive_every and (step + 1) % config.archive_every == 0:
            archive.keep(step, training.stage)
    quality = judge(training, config)
    if quality is not None and mesh.here.replica == 0:
        board.say(f"quality after {config.steps} steps: {quality}")
    board.close()
    return 0 if training.healthy else 3


def main() -> None:
    config = read_config(Path(__file__).with_name("mesh.conf"), sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("MESH_BACKEND", "gloo"))
    try:
        status = run(config)
    finally:
        dist.destroy_process_group()
    sys.exit(status)


if __name__ == "__main__":
    main()
