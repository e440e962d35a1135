"""How long does `hangdoc diagnose` take for a large log, and how much memory?

    python tests/benchmarks/logs.py [--megabytes 1000] [--only NAME,…]

Writes logs of that size in which 0.1 %, 10 % and all lines are of torch's watchdog, one whose lines are
NCCL_DEBUG=INFO's, one with a single line of 100 MB, and a gzip of a few megabytes that unpacks to far more than is
read. Prints of each the seconds by the clock and of the processor, MB a second, and the largest memory; a line is
wrong if the answer is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from made_logs import Torch

T = Torch()
WORK = "".join(
    f"2026-03-09 09:{i // 60 % 60:02d}:{i % 60:02d},123 INFO train.py:212 - step {i} loss {3 - i / 9000:.4f} gnorm 1.2 tok/s 41573\n"
    for i in range(9000)
).encode()
NCCL = "".join(
    f"n1:40{r}:40{r} [{r}] NCCL INFO AllReduce: opCount {i:x} sendbuff 0x7f0a02000000 recvbuff 0x7f0a02000000 count 1048576 "
    f"datatype 9 op 0 root 0 comm 0x55d0c1a2b000 [nranks=8] stream 0x55d0b9000e40\n"
    for i in range(1000)
    for r in range(8)
).encode()
HANG = ("".join(T.overdue(r, 88121) for r in range(7)) + T.lives(7, caller=0, enqueued=88120)).encode()
WATCHDOG = "".join(T.overdue(r, 88121) for r in range(7) for _ in range(40)).encode()


def _mixed(share: float) -> Callable[[Path, int], None]:
    def write(path: Path, size: int) -> None:
        written = relevant = 0
        with path.open("wb") as file:
            while written < size:
                block = WATCHDOG if relevant < share * written else WORK
                relevant += len(block) if block is WATCHDOG else 0
                written += file.write(block)
            file.write(HANG)

    return write


def _nccl(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // len(NCCL) + 1):
            file.write(NCCL)
        file.write(HANG)


def _one_line(path: Path, _: int) -> None:
    with path.open("wb") as file:
        file.write(b"x" * (100 << 20) + b"\n" + HANG)


def _bomb(path: Path, _: int) -> None:
    block = gzip.compress(HANG + bytes(64 << 20), 9)
    with path.open("wb") as file:
        for _ in range(200):
            file.write(block)


CASES: dict[str, Callable[[Path, int], None]] = {
    "0.1 %": _mixed(0.001),
    "10 %": _mixed(0.1),
    "100 %": _mixed(1.0),
    "NCCL_DEBUG=INFO": _nccl,
    "one line of 100 MB": _one_line,
    "gzip of 12.5 GB": _bomb,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    print(f"{'lines of interest':20} {'size':>9} {'clock':>8} {'cpu':>8} {'MB/s':>6} {'memory':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder, "train.log.gz" if "gzip" in name else "train.log")
            CASES[name](path, options.megabytes << 20)
            _measure(name, path)
            path.unlink()


def _measure(name: str, path: Path) -> None:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [str(Path(sys.executable).with_name("hangdoc")), "diagnose", "--json", str(path)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = run.communicate()
    _, _, usage = (0, 0, resource.getrusage(resource.RUSAGE_CHILDREN))
    clock = time.monotonic() - begun
    cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    said = json.loads(out) if out.strip() else {}
    right = said.get("culprits") == [7] or "gzip" in name
    size = os.path.getsize(path) / 1e6
    # The largest child so far: cases are run from small to large memory.
    print(
        f"{name:20} {size:6.0f} MB {clock:6.1f} s {cpu:6.1f} s {size / cpu:6.0f} {usage.ru_maxrss / 1024:5.0f} MB"
        f"{'' if right else '   WRONG: ' + str(said.get('verdict'))[:80]}",
        flush=True,
    )


if __name__ == "__main__":
    main()
