"""What a watched job pays: an all_reduce of 1 KiB and a small DDP step on 2 gloo ranks, watched against bare.

    python tests/benchmarks/overhead.py [--starts 6] [--pairs 40] [--seconds 0.25] [--two-hosts] [--record phases]
                                        [--guide]

Starts a bare and a watched job side by side, lets them measure in turn (who goes first alternates; the other one, and
its watcher, stand still meanwhile), and starts two new ones. Each rank has a core of its own for all its threads: how
fast gloo is depends most on where they lie, which else a job keeps to its end. Prints the median time of one operation
on rank 0, by the clock and in CPU time of the whole process, and the median of the pairs' ratios with their quartiles.
The target: 1.02. Takes about six minutes. With --two-hosts each rank is on a host of its own, made of namespaces (as
root), under a watch of its own; the two watches have met before anything is measured. With --record phases the watch
records the parts of a step, too: what it costs, the DDP step shows, which has a backward pass and an optimizer.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from guide_pages import put_figures
from hosts import Hosts, why_not

from hangdoc.sidecar.options import RECORDED

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
FIRST_DEADLINE = 300.0
"""To start, import torch and find out how many operations make a turn: 50 s where ten other jobs share the cores."""
MEETING_SECONDS = 20.0
"""For two watches to meet: importing torch for their store takes most of it."""

Times = dict[str, tuple[float, float]]
"""By load, the seconds of one operation: by the clock, of the CPU."""


class Job:
    """A job that measures when it is its turn."""

    def __init__(
        self,
        folder: Path,
        seconds: float,
        *,
        watched: bool,
        record: Sequence[str] = RECORDED,
        hosts: Hosts | None = None,
        program: str = JOB,
        hash_seed: int = 0,
    ) -> None:
        """``record``: what its watch records. ``program``: with its loads."""
        script, turns, results = folder / "job.py", folder / "turns", folder / "results"
        folder.mkdir(parents=True)
        script.write_text(program)
        for fifo in (turns, results):
            os.mkfifo(fifo)
        environment = {
            **os.environ,
            "BENCHMARK_SECONDS": str(seconds),
            "BENCHMARK_TURNS": str(turns),
            "BENCHMARK_RESULTS": str(results),
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": str(
                hash_seed
            ),  # else each process has its own collisions in dictionaries, which are worth 15 %
            **({"GLOO_SOCKET_IFNAME": "eth0"} if hosts is not None else {}),
        }
        self.watched = watched
        self._deadline = FIRST_DEADLINE
        self._record = ["--record", ",".join(record)]
        self._script, self._folder, self._environment = script, folder, environment
        self._processes = (
            [self._started()] if hosts is None else [self._started_on(host.enter, hosts) for host in hosts]
        )
        # Both ends of a FIFO: to open one never waits for the other side.
        self._turns = os.fdopen(os.open(turns, os.O_RDWR), "w")
        self._results = os.fdopen(os.open(results, os.O_RDWR))

    def _started(self) -> subprocess.Popen[bytes]:
        return self._start([], ["--standalone", "--nproc-per-node", "2"], "run")

    def _started_on(self, enter: list[str], hosts: Hosts) -> subprocess.Popen[bytes]:
        port = 29500 + self.watched
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", f"run{port}"]
        return self._start(enter, [*words, "--rdzv-endpoint", f"{hosts.names[0]}:{port}"], enter[1].lstrip("-"))

    def _start(self, enter: list[str], words: list[str], run: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "torch.distributed.run", *words, str(self._script)]
        if self.watched:
            watch = [sys.executable, "-m", "hangdoc", "watch", "--quiet", "--run-dir", str(self._folder / run)]
            line = [*watch, *self._record, "--", *line]
        return subprocess.Popen([*enter, *line], env=self._environment, cwd=self._folder)

    def turn(self) -> Times:
        """Measure once."""
        self._rest(False)
        print("go", file=self._turns, flush=True)
        if not select.select([self._results], [], [], self._deadline)[0]:
            raise SystemExit(f"a job does not answer within {self._deadline:.0f} s")
        self._deadline = DEADLINE
        found: Times = json.loads(self._results.readline())
        self._rest(True)
        return found

    def end(self) -> None:
        """Let the job come to its own end; kill it where it does not."""
        self._rest(False)
        with contextlib.suppress(OSError):
            print("end", file=self._turns, flush=True)
        for process in self._processes:
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
        self._turns.close()
        self._results.close()

    def _rest(self, resting: bool) -> None:
        """The job waits for its turn by itself; its watcher is held."""
        if self.watched:
            for process in self._processes:
                os.kill(_inner(process.pid), signal.SIGSTOP if resting else signal.SIGCONT)
                if not resting:  # nsenter stops when its child does
                    os.kill(process.pid, signal.SIGCONT)


def _inner(pid: int) -> int:
    """The process itself, or the one that its nsenter has started in a host, once it has."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if words[0].endswith(b"nsenter") and children else pid


@contextlib.contextmanager
def two_jobs(folder: Path, seconds: float, record: Sequence[str], *, two_hosts: bool) -> Iterator[tuple[Job, Job]]:
    """A bare one and a watched one, ready to measure."""
    bare = watched = None
    hosts = Hosts("hosta", "hostb", environment={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"}) if two_hosts else None
    try:
        bare = Job(folder / "bare", seconds, watched=False, hosts=hosts)
        bare.turn()
        watched = Job(folder / "watched", seconds, watched=True, record=(*RECORDED, *record), hosts=hosts)
        for _ in range(int(MEETING_SECONDS / (2 * seconds)) if two_hosts else 1):  # of both loads
            watched.turn()
        yield bare, watched
    finally:
        for job in (bare, watched):
            if job is not None:
                job.end()
        if hosts is not None:
            hosts.close()


ROWS = {
    "all_reduce of 1 KiB": "all_reduce of 1 KiB on 2 ranks, watched against bare, by the clock / in CPU time",
    "small DDP step": "a small DDP step on 2 ranks, watched against bare, by the clock / in CPU time",
}
"""The rows of the guide's page, by load."""
ROW_OF_TWO_HOSTS = (
    "all_reduce of 1 KiB on 2 hosts whose watches have met, watched against bare, by the clock / in CPU time"
)


ROW_WITH_PHASES = (
    "a small DDP step on 2 ranks whose phases are recorded, watched against bare, by the clock / in CPU time"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--two-hosts", action="store_true")
    parser.add_argument("--record", choices=["phases"], action="append", default=[])
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    if options.two_hosts and (why := why_not()):
        raise SystemExit(why)
    if options.two_hosts and options.record:
        parser.error("measure --two-hosts and --record one after the other")
    figures: dict[str, list[str]] = {}
    pairs: list[tuple[Times, Times]] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(options.starts):
            place = Path(folder) / str(start)
            with two_jobs(place, options.seconds, options.record, two_hosts=options.two_hosts) as (bare, watched):
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
        rows = {"small DDP step": ROW_WITH_PHASES} if options.record else ROWS
        rows = {"all_reduce of 1 KiB": ROW_OF_TWO_HOSTS} if options.two_hosts else rows
        put_figures({row: " / ".join(figures[load]) for load, row in rows.items()})


if __name__ == "__main__":
    main()
