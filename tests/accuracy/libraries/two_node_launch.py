# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD302", "HD301"]
# culprits = [2, 3]
# culprits_any = [[0, 1], [2], [0], [0, 2]]
# lines = [40, 45, 49, 50, 51, 65, 68, 80, 92]
# source = "https://github.com/pytorch/pytorch/issues/15638"
# ///
"""Launcher and worker in one: starts two 'nodes' of two ranks on this machine; each rank reads the job's meeting point from its node's scratch folder."""
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("launch")
NODES, PER_NODE = 2, 2


def open_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MeetingPoint:
    """A small card in the job folder with the address under which the ranks meet."""

    def __init__(self, folder: Path, local_rank: int):
        self.card = folder / "meeting.json"
        self.local_rank = local_rank

    def publish(self):
        draft = self.card.with_suffix(".draft")
        draft.write_text(json.dumps({"host": "127.0.0.1", "port": open_port()}))
        draft.rename(self.card)

    def resolve(self) -> tuple:
        if self.local_rank == 0:
            self.publish()
        while not self.card.exists():
            time.sleep(0.05)
        card = json.loads(self.card.read_text())
        return card["host"], card["port"]


class Worker:
    def __init__(self, env):
        self.node, self.local_rank = int(env["NODE"]), int(env["LOCAL_RANK"])
        self.rank = self.node * PER_NODE + self.local_rank
        self.world = NODES * PER_NODE
        self.scratch = Path(env["JOB_SCRATCH"])

    def connect(self):
        host, port = MeetingPoint(self.scratch, self.local_rank).resolve()
        log.info("meeting at %s:%d", host, port)
        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.world), MASTER_ADDR=host, MASTER_PORT=str(port))
        dist.init_process_group("gloo", timeout=timedelta(minutes=15))

    def train(self, steps: int):
        weight = torch.zeros(16)
        for _ in range(steps):
            gradient = torch.randn(16)
            dist.all_reduce(gradient)
            weight -= 0.01 * gradient
        log.info("norm %.4f", weight.norm())

    def run(self):
        logging.basicConfig(level=logging.INFO, format=f"[rank {self.rank}] %(message)s")
        self.connect()
        self.train(100)
        dist.destroy_process_group()


class Launcher:
    """Starts the ranks the way the site's job script does: a scratch folder per node, one process per slot."""

    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix="job", dir=os.environ.get("TMPDIR", tempfile.gettempdir())))

    def start(self, node: int, slot: int) -> subprocess.Popen:
        scratch = self.base / f"node{node}"
        scratch.mkdir(exist_ok=True)
        env = dict(os.environ, NODE=str(node), LOCAL_RANK=str(slot), JOB_SCRATCH=str(scratch),
                   RANK=str(node * PER_NODE + slot), WORLD_SIZE=str(NODES * PER_NODE))
        return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], env=env)

    def run(self) -> int:
        ranks = [self.start(node, slot) for node in range(NODES) for slot in range(PER_NODE)]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        Worker(os.environ).run()
    else:
        sys.exit(Launcher().run())
