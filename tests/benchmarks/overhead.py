"""What a watched job pays: an all_reduce of 1 KiB and a small DDP step on 2 gloo ranks, watched against bare.

    python tests/benchmarks/overhead.py [--pairs 24] [--seconds 1]

Runs bare and watched jobs in turn (who goes first alternates), each with both loads. Prints the median time of one
operation on rank 0, by the clock and in CPU time of the whole process, and the median of the pairs' ratios with their
quartiles. Many short jobs: how fast gloo is depends most on where its threads came to lie, which a job keeps to its
end. The target: 1.02.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = """
import json, os, statistics, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def median_time(operation, seconds, block):
    for _ in range(2 * block):
        operation()
    times = []
    # A fixed number of blocks: all ranks must issue the same calls. Rank 0 estimates, everybody follows.
    start = time.perf_counter()
    for _ in range(block):
        operation()
    blocks = torch.tensor([max(5.0, seconds / (time.perf_counter() - start))])
    dist.broadcast(blocks, 0)
    used = time.process_time()
    for _ in range(int(blocks)):
        start = time.perf_counter()
        for _ in range(block):
            operation()
        times.append((time.perf_counter() - start) / block)
    return statistics.median(times), (time.process_time() - used) / len(times) / block

dist.init_process_group("gloo")
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

result = {
    "all_reduce of 1 KiB": median_time(lambda: dist.all_reduce(tensor), seconds, 200),
    "small DDP step": median_time(step, seconds, 50),
}
if dist.get_rank() == 0:
    print(json.dumps(result), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
DEADLINE = 120.0


Times = dict[str, tuple[float, float]]
"""By load, the seconds of one operation: by the clock, of the CPU."""


def run(script: Path, seconds: float, *, watched: bool) -> Times:
    """One job."""
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    if watched:
        line = [sys.executable, "-m", "hangdoc", "watch", "--quiet", "--run-dir", f"{script}.run", "--", *line]
    environment = {**os.environ, "BENCHMARK_SECONDS": str(seconds), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=script.parent
    )
    lines = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if not lines:
        raise SystemExit(done.stderr)
    return json.loads(lines[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    pairs: list[tuple[Times, Times]] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        for number in range(options.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            times = {watched: run(script, options.seconds, watched=watched) for watched in order}
            pairs.append((times[False], times[True]))
    print(f"{'load':20} {'':5} {'bare, µs':>10} {'watched, µs':>12}   ratio (quartiles of {len(pairs)} pairs)")
    for load in pairs[0][0]:
        for number, clock in enumerate(("clock", "CPU")):
            bare = 1e6 * statistics.median(pair[0][load][number] for pair in pairs)
            watched = 1e6 * statistics.median(pair[1][load][number] for pair in pairs)
            ratios = [pair[1][load][number] / pair[0][load][number] for pair in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{load:20} {clock:5} {bare:10.1f} {watched:12.1f}   {middle:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
