"""How long does an attach take? Discovery among 64 idle processes, and from a pid to a verdict with 8 ranks.

    python tests/benchmarks/attach.py [--repeat 9] [--ranks 8] [--guide]

Prints medians with their spread (lowest to highest). The gap between the two looks is part of the verdict's time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

from hangdoc import api
from hangdoc.capture.attach import find_job, list_jobs

IDLE = 64
DEADLINE = 300.0

HUNG = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
open(os.path.join(sys.argv[1], str(dist.get_rank())), "w").close()
if dist.get_rank() == 1:
    dist.barrier()
dist.all_reduce(torch.ones(4))
"""
FORKED = """
import multiprocessing, os, sys, time
import torch
def work(rank, folder):
    open(os.path.join(folder, str(rank)), "w").close()
    time.sleep(3000)
context = multiprocessing.get_context("fork")
ranks = [context.Process(target=work, args=(rank, sys.argv[1])) for rank in range(int(sys.argv[2]))]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
"""
LABELLED = """
import os, subprocess, sys
work = "import os, sys, time; open(os.path.join(sys.argv[1], os.environ['RANK']), 'w').close(); time.sleep(3000)"
shared = dict(os.environ, WORLD_SIZE=sys.argv[2], LOCAL_WORLD_SIZE=sys.argv[2], TORCHELASTIC_RUN_ID="none")
shared.update(MASTER_ADDR="localhost", MASTER_PORT="1")
ranks = [subprocess.Popen([sys.executable, "-S", "-c", work, sys.argv[1]], env=dict(shared, RANK=str(rank)))
         for rank in range(int(sys.argv[2]))]
for rank in ranks:
    rank.wait()
"""


@contextlib.contextmanager
def running(command: list[str], folder: Path, count: int) -> Iterator[int]:
    """The job's first process, once ``count`` ranks have left their marks."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdin=null, stderr=null, start_new_session=True)
    deadline = time.monotonic() + DEADLINE
    try:
        while len(list(folder.iterdir())) < count:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the job did not start: {' '.join(command[:4])}")
            time.sleep(0.1)
        time.sleep(2)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def measure(what: str, repeat: int, function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    print(f"{what:52} {statistics.median(seconds):6.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})", flush=True)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    lists = []
    for name, program in (("labelled", LABELLED), ("forked, known by their stacks", FORKED)):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", program, folder, str(IDLE)]
            with running(command, Path(folder), IDLE) as pid:
                assert len(find_job(pid)[1].pids) == IDLE
                measure(f"discovery, {IDLE} idle ranks, {name}", options.repeat, lambda pid=pid: find_job(pid))
                lists.append(measure(f"list of jobs, {IDLE} idle ranks, {name}", options.repeat, list_jobs))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "hung.py"
        script.write_text(HUNG)
        marks = Path(folder) / "marks"
        marks.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={options.ranks}", str(script), str(marks)]
        with running(command, marks, options.ranks) as pid:
            assert api.attach(pid).culprits == (1,)
            line = [sys.executable, "-m", "hangdoc", "attach", str(pid)]
            quiet = {"stdout": subprocess.DEVNULL, "check": False}
            measure(f"pid to verdict, {options.ranks} ranks", options.repeat, lambda: api.attach(pid))
            name = f"`hangdoc attach`, {options.ranks} ranks"
            verdict = measure(name, options.repeat, lambda: subprocess.run(line, **quiet))
    if options.guide:
        put_figures(
            {
                "`hangdoc attach` to the verdict, 8 ranks, of which 1 s lies between the two looks": f"{verdict:.1f} s",
                "list of jobs among 64 idle ranks, labelled / known by their stacks only": f"{lists[0]:.2f} / "
                f"{lists[1]:.2f} s",
            }
        )


if __name__ == "__main__":
    main()
