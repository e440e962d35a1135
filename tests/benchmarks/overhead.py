"""What a watched job pays: an all_reduce of 1 KiB and a small DDP step on 2 gloo ranks, watched against bare.

    python tests/benchmarks/overhead.py [--starts 6] [--pairs 40] [--seconds 0.25] [--guide]

Starts a bare and a watched job side by side, lets them measure in turn (who goes first alternates; the other one, and
its watcher, stand still meanwhile), and starts two new ones. Each rank has a core of its own for all its threads: how
fast gloo is depends most on where they lie, which else a job keeps to its end. Prints the median time of one operation
on rank 0, by the clock and in CPU time of the whole process, and the median of the pairs' ratios with their quartiles.
The target: 1.02. Takes about six minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

JOB = """
import json, os, statistics, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BLOCKS = 5

def median_time(operation, count):
    times = []
    used = time.process_time()
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(count):
            operation()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times), (time.process_time() - used) / BLOCKS / count

# A core for this rank and all its threads, those that are there already and those to come.
core = sorted(os.sched_getaffinity(0))[int(os.environ["RANK"])]
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), {core})

dist.init_process_group("gloo")
first = dist.get_rank() == 0
seconds = float(os.environ["BENCHMARK_SECONDS"])
tensor = torch.ones(256)
model = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(32, 64)

def step():
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()

loads = {"all_reduce of 1 KiB": lambda: dist.all_reduce(tensor), "small DDP step": step}

# All ranks must issue the same calls: rank 0 estimates how many, everybody follows.
counts = {}
for name, operation in loads.items():
    median_time(operation, 20)
    counts[name] = torch.tensor([max(1, int(seconds / BLOCKS / median_time(operation, 20)[0]))])
    dist.broadcast(counts[name], 0)

turns, results = (open(os.environ[f"BENCHMARK_{end}"], mode) for end, mode in (("TURNS", "r"), ("RESULTS", "w"))) \\
    if first else (None, None)
more = torch.ones(1)
while True:
    if first:
        more[0] = float(turns.readline() == "go\\n")
    dist.broadcast(more, 0)
    if not more:
        break
    found = {name: median_time(operation, int(counts[name])) for name, operation in loads.items()}
    if first:
        print(json.dumps(found), file=results, flush=True)
dist.destroy_process_group()
"""
DEADLINE = 60.0

Times = dict[str, tuple[float, float]]
"""By load, the seconds of one operation: by the clock, of the CPU."""


class Job:
    """A job that measures when it is its turn."""

    def __init__(self, folder: Path, seconds: float, *, watched: bool) -> None:
        script, turns, results = folder / "job.py", folder / "turns", folder / "results"
        folder.mkdir(parents=True)
        script.write_text(JOB)
        for fifo in (turns, results):
            os.mkfifo(fifo)
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
        if watched:
            line = [sys.executable, "-m", "hangdoc", "watch", "--quiet", "--run-dir", str(folder / "run"), "--", *line]
        environment = {
            **os.environ,
            "BENCHMARK_SECONDS": str(seconds),
            "BENCHMARK_TURNS": str(turns),
            "BENCHMARK_RESULTS": str(results),
            "OMP_NUM_THREADS": "1",
        }
        self.watched = watched
        self._process = subprocess.Popen(line, env=environment, cwd=folder)
        # Both ends of a FIFO: to open one never waits for the other side.
        self._turns = os.fdopen(os.open(turns, os.O_RDWR), "w")
        self._results = os.fdopen(os.open(results, os.O_RDWR))

    def turn(self) -> Times:
        """Measure once."""
        self._rest(False)
        print("go", file=self._turns, flush=True)
        if not select.select([self._results], [], [], DEADLINE)[0]:
            raise SystemExit("a job does not answer")
        found: Times = json.loads(self._results.readline())
        self._rest(True)
        return found

    def end(self) -> None:
        """Let the job come to its own end; kill it where it does not."""
        self._rest(False)
        with contextlib.suppress(OSError):
            print("end", file=self._turns, flush=True)
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._turns.close()
        self._results.close()

    def _rest(self, resting: bool) -> None:
        """The job waits for its turn by itself; its watcher is held."""
        if self.watched:
            os.kill(self._process.pid, signal.SIGSTOP if resting else signal.SIGCONT)


@contextlib.contextmanager
def two_jobs(folder: Path, seconds: float) -> Iterator[tuple[Job, Job]]:
    """A bare one and a watched one, ready to measure."""
    bare = watched = None
    try:
        bare = Job(folder / "bare", seconds, watched=False)
        bare.turn()
        watched = Job(folder / "watched", seconds, watched=True)
        watched.turn()
        yield bare, watched
    finally:
        for job in (bare, watched):
            if job is not None:
                job.end()


ROWS = {
    "all_reduce of 1 KiB": "all_reduce of 1 KiB on 2 ranks, watched against bare, by the clock / in CPU time",
    "small DDP step": "a small DDP step on 2 ranks, watched against bare, by the clock / in CPU time",
}
"""The rows of the guide's page, by load."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    figures: dict[str, list[str]] = {}
    pairs: list[tuple[Times, Times]] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(options.starts):
            with two_jobs(Path(folder) / str(start), options.seconds) as (bare, watched):
                for number in range(options.pairs):
                    order = (bare, watched) if (start + number) % 2 == 0 else (watched, bare)
                    times = {job: job.turn() for job in order}
                    pairs.append((times[bare], times[watched]))
    print(f"{'load':20} {'':5} {'bare, µs':>10} {'watched, µs':>12}   ratio (quartiles of {len(pairs)} pairs)")
    for load in pairs[0][0]:
        for number, clock in enumerate(("clock", "CPU")):
            bare_time = 1e6 * statistics.median(pair[0][load][number] for pair in pairs)
            watched_time = 1e6 * statistics.median(pair[1][load][number] for pair in pairs)
            ratios = [pair[1][load][number] / pair[0][load][number] for pair in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            figures.setdefault(load, []).append(f"{middle:.3f} ({low:.2f} to {high:.2f})")
            print(
                f"{load:20} {clock:5} {bare_time:10.1f} {watched_time:12.1f}   {middle:.3f} ({low:.3f} to {high:.3f})"
            )
    if options.guide:
        put_figures({ROWS[load]: " / ".join(both) for load, both in figures.items()})


if __name__ == "__main__":
    main()
