# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD302", "HD301", "HD305"]
# culprits_any = [[1, 2], [0], [0, 3], [0, 1, 2, 3]]
# lines = [45, 46, 47, 50, 52, 53, 58, 75, 76]
# branch = ["not self.endpoint.exists()"]
# source = "issues on address files left by an earlier attempt (submitit, jax coordinator)"
# ///
"""A local launcher whose runs can be continued: the run folder holds the configuration and where the processes meet."""
import argparse
import json
import logging
import pathlib
import shutil
import socket
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

log = logging.getLogger("run")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RunFolder:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.endpoint = self.path / "endpoint.json"
        self.config = self.path / "config.json"

    def create(self, config):
        self.path.mkdir(parents=True)
        self.config.write_text(json.dumps(config))

    def publish(self, port):
        fresh = self.endpoint.with_suffix(".new")
        fresh.write_text(json.dumps({"host": "127.0.0.1", "port": port}))
        fresh.rename(self.endpoint)

    def meet(self):
        while not self.endpoint.exists():
            time.sleep(0.05)
        address = json.loads(self.endpoint.read_text())
        return f"tcp://{address['host']}:{address['port']}"


def continue_run(previous, target):
    """A continued run begins with a copy of what the earlier one has left."""
    shutil.copytree(previous.path, target.path)
    return target


class Job:
    def __init__(self, rank, world, folder):
        self.rank, self.world, self.folder = rank, world, folder
        self.settings = json.loads(folder.config.read_text())

    def load_data(self):
        seconds = self.settings["load_seconds"]
        time.sleep(seconds[self.rank % len(seconds)])
        generator = torch.Generator().manual_seed(self.rank)
        return torch.randn(64, self.settings["width"], generator=generator)

    def join(self):
        if self.rank == 0:
            self.folder.publish(free_port())
        dist.init_process_group("gloo", init_method=self.folder.meet(), rank=self.rank, world_size=self.world,
                                timeout=timedelta(hours=1))

    def run(self):
        data = self.load_data()
        self.join()
        mean = data.mean(dim=0)
        dist.all_reduce(mean)
        log.info("rank %d: mean of all %.4f", self.rank, float(mean.mean() / self.world))
        dist.barrier()
        dist.destroy_process_group()


def worker(rank, world, path):
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    Job(rank, world, RunFolder(path)).run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--width", type=int, default=12)
    args = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="runs-"))
    first = RunFolder(base / "first")
    first.create({"width": args.width, "load_seconds": [1.0, 0.1, 0.1, 2.0]})
    first.publish(free_port())
    second = continue_run(first, RunFolder(base / "second"))
    mp.spawn(worker, args=(args.ranks, str(second.path)), nprocs=args.ranks)


if __name__ == "__main__":
    main()
