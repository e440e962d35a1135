"""How long does the diagnosis of a folder of flight-recorder dumps take, beside reading the files at all?

    python tests/benchmarks/dumps.py [--full] [--shape RANKSxCALLS …] [--mesh] [--depth N] [--keep DIR] [--no-torch]
                                      [--guide]

Writes dumps as NCCL's recorder does (one rank has left out a call), by default small ones of 64 x 500 and 512 x 100,
with ``--full`` 512 x 2,000 and 4,096 x 100. Each is then read in processes of their own: by ``pickle.load``, file by
file; by ``hangdoc diagnose``; and by torch's own analyzer. Prints the processor time of each, children included, its
ratio to the first, and the largest memory of one process. ``--mesh`` adds the rows and columns of a square mesh.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

import hangdoc

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER = "/job/project/train.py"
ROUND = 20
"""Calls of one round of the training loop; each has a line of its own."""
START = 1_795_000_000 * 10**9


def frames(depth: int) -> list[list[dict[str, Any]]]:
    """The stacks of a round, innermost first; a frame is one object in all of them."""
    below = [{"name": f"outer_{i}", "filename": USER, "line": 500 + i} for i in range(depth - 2)]
    top = {"name": "all_reduce", "filename": C10D, "line": 3000}
    return [[top, {"name": "train", "filename": USER, "line": 10 + i}, *below] for i in range(ROUND)]


def dump(rank: int, ranks: int, calls: int, depth: int, side: int) -> dict[str, Any]:
    """One rank's dump. The last but one rank has left out a call and is one ahead in all that follows."""
    groups = [("0", "default_pg", list(range(ranks)))]
    if side:
        row = rank // side
        groups.append((f"row_{row}", "mesh_row", list(range(row * side, row * side + side))))
        groups.append((f"column_{rank % side}", "mesh_column", list(range(rank % side, ranks, side))))
    stacks = frames(depth)
    numbers = [0] * len(groups)
    missing = calls - ROUND // 2 if rank == ranks - 2 else -1
    entries: list[dict[str, Any]] = []
    for number in range(calls):
        if number == missing:
            continue
        at = number % ROUND
        group = at % 3 if side and at else 0
        numbers[group] += 1
        name, text, _ = groups[group]
        created = START + number * 1_000_000 + rank
        done = number < calls - ROUND // 2 - ROUND
        entries.append({
            "frames": list(stacks[at]), "record_id": len(entries), "pg_id": group, "process_group": (name, text),
            "thread_name": "python", "thread_id": str(140_000_000_000 + rank), "collective_seq_id": numbers[group],
            "p2p_seq_id": 0, "op_id": numbers[group], "profiling_name": "nccl:all_reduce", "time_created_ns": created,
            "input_sizes": [[at + 1, 1024]], "input_dtypes": ["Float"], "output_sizes": [[at + 1, 1024]],
            "output_dtypes": ["Float"], "state": "completed" if done else "scheduled",
            "time_discovered_started_ns": created + 5000 if done else None,
            "time_discovered_completed_ns": created + 9000 if done else None,
            "retired": done, "timeout_ms": 600_000, "is_p2p": False,
        })  # fmt: skip
    config = {name: {"name": name, "desc": text, "ranks": json.dumps(members)} for name, text, members in groups}
    status = {
        str(i): {"last_enqueued_collective": n, "last_started_collective": -1, "last_completed_collective": n - 1}
        for i, n in enumerate(numbers)
    }
    return {"version": "2.10", "pg_config": config, "pg_status": status, "comm_lib_version": "2.27", "entries": entries}


ROWS = {
    ("512x2000", "hangdoc"): "512 dumps of 2,000 calls: CPU time against that of `pickle.load` / peak memory",
    ("512x2000", "torchfrtrace"): "the same dumps by torch's own analyzer, `torchfrtrace`",
    ("4096x100", "hangdoc"): "4,096 dumps of 100 calls, as above",
    ("4096x100", "torchfrtrace"): "these dumps by `torchfrtrace`",
}
"""In the guide: of which shape and by which way."""

READ = """
import pickle, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with path.open("rb") as file:
        pickle.load(file)
"""


# It prints tables with a package that torch does not require; without it, nothing of its analysis would run.
FRTRACE = """
import runpy, sys, types
sys.modules["tabulate"] = types.ModuleType("tabulate")
sys.modules["tabulate"].tabulate = lambda *rows, **options: ""
runpy.run_module("torch.distributed.flight_recorder.fr_trace", run_name="__main__")
"""


def measure(command: list[str]) -> tuple[float, float, float, int]:
    """(processor seconds of it and its children, seconds, MiB of the largest of them, exit status)."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, process.returncode


def run(shape: str, options: argparse.Namespace, folder: Path) -> None:
    """Write, read, print."""
    ranks, calls = map(int, shape.split("x"))
    side = math.isqrt(ranks) if options.mesh else 0
    # An installed package has its bytecode.
    compileall.compile_dir(Path(hangdoc.__file__).parent, quiet=2)
    total = 0
    for rank in range(ranks):
        data = pickle.dumps(dump(rank, ranks, calls, options.depth, side), protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        total += len(data)
    print(f"{ranks} ranks x {calls} calls, stacks of {options.depth}, {total >> 20} MiB", flush=True)
    ways = {
        "pickle.load": [sys.executable, "-S", "-c", READ, str(folder)],
        "hangdoc": [sys.executable, "-m", "hangdoc", "diagnose", str(folder)],
        "torchfrtrace": [sys.executable, "-c", FRTRACE, str(folder), "-p", "nccl_trace_rank_"],
    }  # fmt: skip
    if options.no_torch:
        del ways["torchfrtrace"]
    plain = 0.0
    for name, command in ways.items():
        found = sorted(measure(command) for _ in range(options.rounds))[options.rounds // 2]
        cpu, wall, memory, status = found
        plain = plain or cpu
        ratio = f"{cpu / plain:5.1f} x"
        if options.guide and not side and (shape, name) in ROWS:
            put_figures({ROWS[shape, name]: f"{cpu / plain:.1f} times / {memory:,.0f} MiB"})
        print(f"  {name:13} {cpu:7.2f} CPU s  {ratio}  {wall:7.2f} s  {memory:6.0f} MiB  exit {status}", flush=True)


def main() -> None:
    """Run the shapes one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--shape", action="append")
    parser.add_argument("--mesh", action="store_true")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave the dumps in this directory")
    parser.add_argument("--no-torch", action="store_true", help="without torch's analyzer")
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide")
    options = parser.parse_args()
    for shape in options.shape or (["512x2000", "4096x100"] if options.full else ["64x500", "512x100"]):
        folder = (options.keep or Path(tempfile.mkdtemp(prefix="hangdoc-dumps-"))) / shape
        folder.mkdir(parents=True)
        try:
            run(shape, options, folder)
        finally:
            if options.keep is None:
                shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
