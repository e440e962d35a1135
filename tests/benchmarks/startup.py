"""How long `hangdoc --help` takes, and that it does not import torch.

    python tests/benchmarks/startup.py [--rounds 11] [--guide]

Prints the median with its spread. The target: 0.5 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

PROBE = "import sys, hangdoc.cli; hangdoc.cli.main(['--help']); sys.exit('torch' in sys.modules)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    rounds = options.rounds
    subprocess.run([sys.executable, "-c", PROBE], stdout=subprocess.DEVNULL, timeout=30, check=True)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "hangdoc", "--help"], stdout=subprocess.DEVNULL, timeout=30, check=True)
        times.append(time.perf_counter() - start)
    print(f"hangdoc --help  {statistics.median(times):.2f} s  ({min(times):.2f} to {max(times):.2f})  without torch")
    if options.guide:
        put_figures({"`hangdoc --help`, which does not import torch": f"{statistics.median(times):.2f} s"})


if __name__ == "__main__":
    main()
