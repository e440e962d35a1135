"""What TORCH_NCCL_ENABLE_TIMING=1 costs a job on one CUDA device: an all_reduce of 1 KiB, with it against without.

    python tests/benchmarks/timing.py [--pairs 20]

Starts a job with and a job without it in turn, who goes first alternates, and prints the median of the pairs' ratios
with their quartiles. A watch may set the variable if that is at most 1.02. Without a device it measures nothing; none
was at hand when it was written.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from device import missing

JOB = """
import os, statistics, time
import torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
tensor = torch.ones(256, device="cuda")
times = []
for _ in range(12):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(500):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    times.append((time.perf_counter() - start) / 500)
print(statistics.median(times[2:]))
"""


def seconds(timing: str) -> float:
    """Median time of one call in a job of its own."""
    environment = {**os.environ, "TORCH_NCCL_ENABLE_TIMING": timing}
    job = subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, timeout=120)
    return float(job.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    if missing():
        print(f"not measured: {missing()}")
        return 0
    ratios = []
    for number in range(pairs):
        order = ("0", "1") if number % 2 else ("1", "0")
        taken = {timing: seconds(timing) for timing in order}
        ratios.append(taken["1"] / taken["0"])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"with TORCH_NCCL_ENABLE_TIMING: {middle:.3f} times as long ({low:.3f} to {high:.3f}); the target is 1.02")
    return 0


if __name__ == "__main__":
    sys.exit(main())
