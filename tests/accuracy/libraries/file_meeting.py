# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD302", "HD301"]
# culprits = [0, 1, 2]
# culprits_any = [[0], [1], [2], [0, 1], [0, 2], [1, 2]]
# lines = [32, 40, 67, 69]
# source = "https://github.com/tier4/Diffusion-Planner/pull/335"
# ///
"""Starts three ranks of a planner job on one host; they meet through a file in the scratch directory of this job."""
import argparse
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

log = logging.getLogger("planner")
DEFAULTS = {"model": "planner-s", "horizon": "80", "agents": "32", "dataset": "synthetic", "user": "batch"}


class Job:
    """What the launcher and its ranks agree on."""

    def __init__(self, options):
        self.options = dict(options)

    @property
    def tag(self):
        return f"{hash(frozenset(self.options.items())) & 0xFFFFFFFF:08x}"

    def scratch(self):
        root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "planner"
        root.mkdir(parents=True, exist_ok=True)
        return root

    def meeting_file(self):
        return self.scratch() / f"meet-{self.tag}"


class Launcher:
    def __init__(self, job, world):
        self.job, self.world = job, world

    def environment(self, rank):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.world))
        env.setdefault("OMP_NUM_THREADS", "1")
        return env

    def run(self):
        options = [f"--{k}={v}" for k, v in self.job.options.items()]
        ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *options], env=self.environment(r))
                 for r in range(self.world)]
        codes = [p.wait() for p in ranks]
        log.info("ranks ended with %s", codes)
        return max(codes)


def train(job):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    init_method = f"file://{job.meeting_file()}"
    log.info("rank %d of %d joins job", rank, world)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world)
    model = DistributedDataParallel(torch.nn.Linear(int(job.options["horizon"]), 2))
    optim = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        loss = model(torch.randn(int(job.options["agents"]), int(job.options["horizon"]))).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if rank == 0 and step % 5 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = argparse.ArgumentParser()
    for key, value in DEFAULTS.items():
        parser.add_argument(f"--{key}", default=value)
    job = Job(vars(parser.parse_args()))
    if "RANK" in os.environ:
        train(job)
    else:
        sys.exit(Launcher(job, world=3).run())


if __name__ == "__main__":
    main()
