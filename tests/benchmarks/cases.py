"""How long does the diagnosis of the saved cases take?

    python tests/benchmarks/cases.py [--rounds N] [--against REF]

Diagnoses every case of tests/data N times, snapshots loaded before the clock starts, and prints the sum of the best
times in CPU seconds and the slowest five cases. ``--against`` does the same, in turns, with the code of another
commit (checked out in a temporary worktree, on the cases of this one), and prints the ratio: two copies of
the same code differ by up to 4 % on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SLOWEST = 5

Times = dict[str, float]


def measure() -> Times:
    """The time of each case, with the hangdoc that this process imports."""
    import hangdoc

    loaded = {path.stem: hangdoc.load(path) for path in sorted(DATA.rglob("*.hangdoc"))}
    hangdoc.diagnose(next(iter(loaded.values())))  # what is imported and read once is no case's cost
    gc.collect()
    gc.freeze()  # or one unlucky case pays for a look through the snapshots of all
    times = {}
    for name, snapshot in loaded.items():
        began = time.process_time()
        hangdoc.diagnose(snapshot)
        times[name] = time.process_time() - began
    return times


def measured_in_child(code: Path) -> Times:
    """As ``measure``, with the hangdoc that lies in ``code``, in a process without memories of an earlier round."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONHASHSEED": "0"}
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    origin, times = json.loads(output)
    if not Path(origin).is_relative_to(code):
        sys.exit(f"hangdoc came from {origin}, not from {code}")
    return times


@contextlib.contextmanager
def worktree(ref: str) -> Iterator[Path]:
    """The files of ``ref`` in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="hangdoc-cases-") as folder:
        code = Path(folder).resolve() / "code"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(code), ref], check=True)
        try:
            yield code
        finally:
            subprocess.run([*git, "remove", "--force", str(code)], check=True)


def better(first: Times, second: Times) -> Times:
    """The best of both; ``first`` may be empty."""
    return {name: min(seconds, first.get(name, seconds)) for name, seconds in second.items()}


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="REF")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        import hangdoc

        print(json.dumps([hangdoc.__file__, measure()]))
        return
    here: Times = {}
    there: Times = {}
    with worktree(options.against) if options.against else contextlib.nullcontext() as other:
        for _ in range(options.rounds):
            here = better(here, measured_in_child(ROOT))
            if other is not None:
                there = better(there, measured_in_child(other))
    total = sum(here.values())
    print(f"{len(here)} cases, best of {options.rounds}: {total:.3f} s")
    for name, seconds in sorted(here.items(), key=lambda item: -item[1])[:SLOWEST]:
        before = f"  ({there[name] * 1000:.1f} at {options.against})" if there else ""
        print(f"  {seconds * 1000:6.1f} ms  {name}{before}")
    if there:
        before = sum(there.values())
        print(f"{options.against}: {before:.3f} s; here {total / before:.2f} times as long")


if __name__ == "__main__":
    main()
