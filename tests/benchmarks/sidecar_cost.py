"""What the sidecar costs beside 8 ranks, and how long a verdict takes.

    python tests/benchmarks/sidecar_cost.py [--ranks 8] [--seconds 30] [--rounds 3] [--guide]

Prints, as medians with their spread: CPU time of the watching process as a share of one core, its peak resident
memory, and the seconds from the end of the stall threshold to the printed verdict. The targets: 1 %, 80 MB, 3 s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

JOB = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(256)
torch.set_num_threads(1)
end = time.monotonic() + float(os.environ["SECONDS"])
while True:
    going = torch.tensor([float(time.monotonic() < end)])
    dist.all_reduce(going, op=dist.ReduceOp.MIN)
    if not going:
        break
    dist.all_reduce(tensor)
    time.sleep(0.05)
if dist.get_rank() == 0:
    print("stalls", time.time(), flush=True)
    dist.barrier()
dist.all_reduce(tensor)
"""
TICK = os.sysconf("SC_CLK_TCK")
STALL_AFTER = 5.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_megabytes(pid: int) -> float:
    """Peak resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def measure(ranks: int, seconds: float, folder: Path) -> tuple[float, float, float, float]:
    """Share of a core (percent), peak memory while healthy and after the verdict (MB), seconds to the verdict."""
    script = folder / "job.py"
    script.write_text(JOB)
    log = folder / "stderr"
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", str(STALL_AFTER), "--on-hang", "report"]
    line += ["--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "SECONDS": str(seconds + 10), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as errors:
        watch = subprocess.Popen(
            [*line, str(script)], env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        # The ranks have started when the last of them has bound its probe's socket.
        while True:
            found = [path for path in Path("/proc").glob("[0-9]*/environ") if parent(path.parent) == watch.pid]
            sockets = [] if not found else list(socket_folder(found[0]).glob("*.sock"))
            if len(sockets) >= ranks:
                break
            if watch.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.2)
        time.sleep(3.0)
        before, began = cpu_seconds(watch.pid), time.monotonic()
        time.sleep(seconds)
        share = 100 * (cpu_seconds(watch.pid) - before) / (time.monotonic() - began)
        healthy = peak_megabytes(watch.pid)
        assert watch.stdout is not None
        stalled = float(watch.stdout.readline().split()[1])
        while b"HD" not in log.read_bytes():
            time.sleep(0.02)
        verdict = time.time() - stalled - STALL_AFTER
        return share, healthy, peak_megabytes(watch.pid), verdict
    finally:
        watch.terminate()
        watch.wait(60)


def parent(process: Path) -> int:
    """Pid of the parent; -1 for a process that is gone."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def socket_folder(environ: Path) -> Path:
    """What HANGDOC_PROBE names."""
    for item in environ.read_bytes().split(b"\0"):
        if item.startswith(b"HANGDOC_PROBE="):
            return Path(os.fsdecode(item.partition(b"=")[2]))
    return Path("/nonexistent")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    rows = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(options.ranks, options.seconds, Path(folder)))
    names = ["share of a core, %", "peak memory, healthy, MB", "peak memory, after a verdict, MB", "verdict after, s"]
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name:34} {statistics.median(values):7.2f}   ({min(values):.2f} to {max(values):.2f})")
    if options.guide:
        share, healthy, after, verdict = zip(*rows, strict=True)
        put_figures(
            {
                "sidecar beside 8 ranks: share of one core": f"{statistics.median(share):.2f} % "
                f"({min(share):.2f} to {max(share):.2f})",
                "its peak memory, healthy / after a verdict": f"{statistics.median(healthy):.0f} / "
                f"{statistics.median(after):.0f} MB",
                "end of the stall threshold to the printed verdict, 8 ranks": f"{statistics.median(verdict):.1f} s "
                f"({min(verdict):.1f} to {max(verdict):.1f})",
            }
        )


if __name__ == "__main__":
    main()
