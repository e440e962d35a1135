"""What the recorder of branches costs a rank, on a Python that has it (3.12, 3.13): run by such a Python with torch.

    python3.13 tests/benchmarks/branches.py [--starts 16] [--rounds 8] [--seconds 0.1] [--instructions]
                                            [--guide]

Starts three jobs of 2 gloo ranks, bare, watched without the recorder and watched with it, lets them measure in turn,
and starts three new ones. How fast a process is depends by some per cent on where its memory lies and how its strings
hash: the three of one start hash alike, and each start is one sample. A round has two turns of each job in the order
1 2 3 3 2 1, so that what changes with time falls on all alike. The loads: a small DDP step with a function of the
program's own that has 60 branches a step, and pure-Python preprocessing. Prints the median of the starts' ratios, by
the clock and in CPU time, with its confidence interval of 95 % by order statistics; then what an event costs. With
--instructions also, by valgrind's callgrind, how many instructions of the processor one call of the preprocessing takes
once its busy tests are told of no more. The targets: 1.01 for the step, 1.02 for the preprocessing, 1.01 for its
instructions. Takes some ten minutes.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

sys.path.insert(0, str(Path(__file__).parents[2] / "hangdoc" / "probe"))

import hangdoc_probe_branches
import hangdoc_probe_budget
from guide_pages import put_figures
from overhead import JOB, Job

from hangdoc.sidecar.options import RECORDED

PROBE = Path(__file__).parents[2] / "hangdoc" / "probe"
OWN_LOADS = """
def decide(number, row):
    if row is None or not row:
        return 0
    if number % 2 == 0:
        return 1
    return -1 if number > 3 else 2

rows = [None, [], [1], [2, 3], [4]] * 3
def branching_step():
    total = 0
    for number, row in enumerate(rows):
        total += decide(number, row)
    step()
    return total

words = "the quick brown fox, jumps over The lazy dog; and Runs away 12 times before 7 o'clock.".split() * 20
def preprocess():
    counts = {}
    for word in words:
        word = word.strip(",;.").lower()
        if word.isdigit():
            continue
        if len(word) > 2 and word not in ("the", "and"):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts)

loads = {"DDP step with 60 branches": branching_step, "preprocessing": preprocess}
"""
PROGRAM = "\n".join(
    OWN_LOADS if line.startswith("loads = ") else line
    for line in JOB.splitlines()
    if not line.startswith("import json")
).replace("BLOCKS = 5", "import json, os, statistics, time\nBLOCKS = 5")
KINDS = {"bare": None, "off": tuple(what for what in RECORDED if what != "branches"), "on": RECORDED}
CONFIDENCE = 0.95
ROWS = {
    "DDP step with 60 branches": "a small DDP step with 60 branches of the program's own on 2 ranks, which are "
    "recorded, against bare, by the clock / in CPU time",
    "preprocessing": "pure-Python preprocessing on 2 ranks, of which branches are recorded, as above",
}
"""The rows of the guide's page, by load: with Python 3.13, which records branches by default."""


def busy(count: int) -> int:
    """Three branches a round."""
    total = 0
    for number in range(count):
        if number % 3 == 0:
            total += 1
        elif number % 2:
            total -= 1
    return total


def event_ns() -> float:
    """What an event costs, in ns of CPU time, where none of them is disabled: with and without them in turn."""
    hangdoc_probe_budget.MOST_AT_ONCE_NS = 1 << 60
    extra = []
    for _ in range(30):
        globals()["busy"] = types.FunctionType(busy.__code__.replace(), globals())  # as it was compiled
        recorder = hangdoc_probe_branches.Branches([os.path.dirname(os.__file__)])
        taken = []
        for on in (False, True):
            if on:
                recorder.start(lambda *_: None)
            began = time.thread_time_ns()
            busy(6000)
            taken.append(time.thread_time_ns() - began)
        recorder.stop()
        events = sum(map(hangdoc_probe_budget.times, recorder.outcomes[id(busy.__code__)]))
        extra.append((taken[1] - taken[0]) / events)
    return statistics.median(extra)


COUNTED = """
import collections, itertools, os, sys
sys.path.insert(0, {probe!r})
import hangdoc_probe_branches, hangdoc_probe_budget
def step(): pass
{loads}
hangdoc_probe_budget.MOST_AT_ONCE_NS = hangdoc_probe_budget.SHARE = 0  # told of no more as soon as it is judged
recorder = hangdoc_probe_branches.Branches([os.path.dirname(os.__file__), {probe!r}])
if {on}:
    recorder.start(lambda *_: None)
collections.deque(itertools.starmap(preprocess, itertools.repeat((), {calls})), 0)  # a loop without a test
"""


def instructions(*, on: bool) -> float:
    """Of one call of the preprocessing, once all of its busy tests are told of no more."""
    totals = []
    for calls in (20, 120):
        program = COUNTED.format(probe=str(PROBE), loads=OWN_LOADS, on=on, calls=calls)
        line = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", program]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        said = subprocess.run(line, env=environment, capture_output=True, text=True, check=True, timeout=300).stderr
        found = re.search(r"Collected : (\d+)", said)
        assert found is not None, said
        totals.append(int(found[1]))
    return (totals[1] - totals[0]) / 100


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A confidence interval of the median, by order statistics; of five values and fewer the extremes."""
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < count // 2:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    at = max(rank - 1, 0)
    return ordered[at], ordered[count - 1 - at]


Rounds = list[dict[str, dict[str, tuple[float, float]]]]
"""In each, by kind of job and load, the time by the clock and in CPU time of two turns."""


def measured(folder: Path, start: int, options: argparse.Namespace) -> Rounds:
    """What three new jobs measure."""
    jobs: dict[str, Job] = {}
    rounds: Rounds = []
    try:
        for kind, record in KINDS.items():
            jobs[kind] = Job(
                folder / f"{start}-{kind}",
                options.seconds,
                watched=record is not None,
                record=record or (),
                program=PROGRAM,
                hash_seed=start,
            )
        for job in jobs.values():
            job.turn()
        for number in range(options.rounds):
            order = list(jobs)[(start + number) % 3 :] + list(jobs)[: (start + number) % 3]
            turns = [(kind, jobs[kind].turn()) for kind in (*order, *reversed(order))]
            rounds.append(
                {
                    kind: {
                        load: (
                            sum(t[load][0] for k, t in turns if k == kind),
                            sum(t[load][1] for k, t in turns if k == kind),
                        )
                        for load in ROWS
                    }
                    for kind in KINDS
                }
            )
    finally:
        for job in jobs.values():
            job.end()
    return rounds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.1, help="that a turn takes for each load")
    parser.add_argument("--instructions", action="store_true", help="count the processor's instructions, too")
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    if options.instructions and shutil.which("valgrind") is None:
        parser.error("--instructions needs valgrind")
    print(f"an event: {event_ns():.0f} ns")
    if options.instructions:
        print(f"instructions of the preprocessing: {instructions(on=True) / instructions(on=False):.4f}")
    with tempfile.TemporaryDirectory() as folder:
        starts = [measured(Path(folder), start, options) for start in range(options.starts)]
    figures: dict[str, list[str]] = {}
    for load in ROWS:
        for number, clock in enumerate(("clock", "CPU")):
            times = {kind: statistics.median(r[kind][load][number] / 2 for s in starts for r in s) for kind in KINDS}
            print(load, clock, *(f"{kind} {1e6 * taken:.1f} µs" for kind, taken in times.items()))
            for one, other in (("on", "bare"), ("on", "off"), ("off", "bare")):
                ratios = [statistics.median(r[one][load][number] / r[other][load][number] for r in s) for s in starts]
                low, high = interval(ratios)
                figure = f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"
                print(f"    {one} against {other}: {figure}")
                if (one, other) == ("on", "bare"):
                    figures.setdefault(load, []).append(figure)
    if options.guide:
        put_figures({row: " / ".join(figures[load]) for load, row in ROWS.items()})


if __name__ == "__main__":
    main()
