# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Rank 0 starts a separate exporter process, which computes for half a minute and writes a file; all other ranks poll for the file with sleeps."""
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

EXPORTER = "import sys, time\nend = time.monotonic() + 28\nx = 1\nwhile time.monotonic() < end: x = x * 3 % 1000003\nopen(sys.argv[1], 'w').write(str(x))"


@dataclass
class Export:
    folder: Path
    poll: float = 0.5

    @property
    def target(self):
        return self.folder / "vocab.txt"


class Exporter:
    def __init__(self, export):
        self.export = export

    def start(self):
        return subprocess.Popen([sys.executable, "-S", "-c", EXPORTER, str(self.export.target)])


class Waiter:
    def __init__(self, export):
        self.export = export

    def wait(self):
        while not self.export.target.exists():
            time.sleep(self.export.poll)
        return self.export.target.read_text()


def main():
    dist.init_process_group("gloo")
    rank, name = dist.get_rank(), [None]
    if rank == 0:
        name[0] = tempfile.mkdtemp()
    dist.broadcast_object_list(name, src=0)
    export = Export(Path(name[0]))
    child = Exporter(export).start() if rank == 0 else None
    Waiter(export).wait()
    if child:
        child.wait()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
