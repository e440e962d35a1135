"""What the recorder of branches costs a rank, on a Python that has it (3.12, 3.13): run by such a Python with torch.

    python3.13 tests/benchmarks/branches.py [--starts 4] [--rounds 20] [--seconds 0.25] [--guide]

Starts three jobs of 2 gloo ranks side by side, bare, watched without the recorder and watched with it, lets them
measure in turn, and starts three new ones: a small DDP step with a function of the program's own that has 60 branches a
step, and pure-Python preprocessing. Prints the median of the rounds' ratios with their quartiles, by the clock and in
CPU time; then what an event costs, and which part of a busy rank's first ten seconds its events take. The targets: 1.01
for the step, 1.02 for the preprocessing, 0.5 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

sys.path.insert(0, str(Path(__file__).parents[2] / "hangdoc" / "probe"))

import hangdoc_probe_branches
from guide_pages import put_figures
from overhead import JOB, Job

from hangdoc.sidecar.options import RECORDED

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
KINDS = {"bare": None, "off": RECORDED, "on": (*RECORDED, "branches")}
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
    """What an event costs, in ns of CPU time: none of them is disabled."""
    best = {}
    for on in (False, True):
        recorder = hangdoc_probe_branches.Branches([])
        if on:
            hangdoc_probe_branches.MOST_AT_ONCE_NS = 1 << 60
            recorder.start(lambda *_: None)
        times = []
        for _ in range(30):
            began = time.thread_time_ns()
            busy(6000)
            times.append(time.thread_time_ns() - began)
        recorder.stop()
        best[on] = statistics.median(times)
        counts = recorder.outcomes.get(id(busy.__code__), [])
    return (best[True] - best[False]) / (sum(map(hangdoc_probe_branches.times, counts)) / 30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    print(f"an event: {event_ns():.0f} ns")
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(options.starts):
            jobs = {}
            try:
                for kind, record in KINDS.items():
                    place = Path(folder) / f"{start}-{kind}"
                    watched = record is not None
                    jobs[kind] = Job(place, options.seconds, watched=watched, record=record or (), program=PROGRAM)
                    jobs[kind].turn()
                for number in range(options.rounds):
                    order = list(jobs)[number % 3 :] + list(jobs)[: number % 3]
                    rounds.append({kind: jobs[kind].turn() for kind in order})
            finally:
                for job in jobs.values():
                    job.end()
    figures: dict[str, list[str]] = {}
    for load in rounds[0]["bare"]:
        for number, clock in enumerate(("clock", "CPU")):
            print(
                load,
                clock,
                *(f"{k} {1e6 * statistics.median(r[k][load][number] for r in rounds):.1f} µs" for k in KINDS),
            )
            for against in ("bare", "off"):
                ratios = [each["on"][load][number] / each[against][load][number] for each in rounds]
                low, middle, high = statistics.quantiles(ratios, n=4)
                print(f"    on against {against}: {middle:.3f} ({low:.3f} to {high:.3f})")
                if against == "bare":
                    figures.setdefault(load, []).append(f"{middle:.3f} ({low:.2f} to {high:.2f})")
    if options.guide:
        put_figures({row: " / ".join(figures[load]) for load, row in ROWS.items()})


if __name__ == "__main__":
    main()
